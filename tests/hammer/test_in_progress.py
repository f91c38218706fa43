"""Copies that come while the first still runs."""

from __future__ import annotations

import pytest
from django.db import connection

from django_webhook_idempotency.models import WebhookDelivery

from .conftest import Start
from .ledger_state import assert_exactly_once, assert_finished, assert_quiet, effects
from .provider import PROVIDERS, Event, Sending, fresh, post
from .sqlite import SQLITE

WAIT = 0.3  # seconds that a copy waits
SLOW = 1500  # milliseconds that the handler takes
#: SQLite's one lock is waited for by SQLite itself, so there the bound is its own time-out.
SQLITE_WAITS_BRIEFLY = {**SQLITE, "timeout": WAIT}
KINDS = ["hammer.atomic", "hammer.leased"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_waits_for_a_bounded_time_and_is_asked_to_come_back(start: Start, kind: str) -> None:
    """WB-077: 503 with Retry-After, for GitHub 409; a duplicate as soon as the first is done."""
    one_at_a_time = connection.vendor == "sqlite" and kind == "hammer.atomic"
    providers = ("github",) if one_at_a_time else PROVIDERS
    events = [
        Event(provider, fresh(f"slow-{provider}"), kind, {"after": SLOW}) for provider in providers
    ]
    server = start(workers=2 * len(events), WAIT=WAIT, sqlite=SQLITE_WAITS_BRIEFLY)
    firsts = [Sending(server.port, event) for event in events]
    server.wait_for("enter", count=len(events))
    copies = [Sending(server.port, event) for event in events]
    answers = [copy.answer for copy in copies]
    assert server.journal.lines("leave") == [], "the handlers were not slow enough"
    for event, answer in zip(events, answers, strict=True):
        assert answer.word == "in_progress"
        expected = (409, "") if event.provider == "github" else (503, "5")
        assert (answer.status, answer.retry_after) == expected
        assert answer.seconds >= WAIT
    assert [(first.answer.status, first.answer.word) for first in firsts] == [
        (200, "processed") for _ in events
    ]
    late = [post(server.port, event) for event in events]
    assert [(answer.status, answer.word) for answer in late] == [(200, "duplicate") for _ in events]
    assert_exactly_once(events)
    outcomes = set(WebhookDelivery.objects.values_list("outcome", flat=True))
    # While SQLite's one lock is held nothing can be written, so that row is only logged.
    assert outcomes == {"processed", "duplicate"} | (set() if one_at_a_time else {"in_progress"})
    assert_quiet(server)


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_not_accepted_while_the_first_may_still_fail(start: Start, kind: str) -> None:
    """WB-014: the first fails after the copy was answered; the event is run again.

    Whoever can wait gets the end of the second run and is not asked to come back.
    """
    server = start(workers=4, WAIT=WAIT, sqlite=SQLITE_WAITS_BRIEFLY)
    event = Event("stripe", fresh("fails"), kind, {"after": SLOW, "failures": 1})
    first = Sending(server.port, event)
    server.wait_for("enter")
    copies = [Sending(server.port, event) for _ in range(2)]
    answers = [copy.answer for copy in copies]
    assert server.journal.lines("leave") == [], "the handler was not slow enough"
    assert [answer.status for answer in answers] == [503, 503]
    assert (first.answer.status, first.answer.word) == (500, "failed")
    patient = start(workers=3, WAIT=60)
    again = Sending(patient.port, event)
    patient.wait_for("enter", count=2)
    copy = post(patient.port, event)
    assert (copy.status, copy.word) == (200, "duplicate")
    assert (again.answer.status, again.answer.word) == (200, "processed")
    if kind == "hammer.atomic":
        assert_exactly_once([event])
    else:
        assert_finished({event.id})
        assert effects() == {event.id: 2}
    assert server.journal.lines("overlap") == []
    assert_quiet(server)
    assert_quiet(patient)
