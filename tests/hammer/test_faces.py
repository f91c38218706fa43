"""ATOMIC_REQUESTS makes no difference to any face: the same results with it and without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from django_webhook_idempotency.models import HandlerRun, WebhookEvent

from .conftest import Start, only_when_full
from .ledger_state import assert_finished, assert_quiet, effects
from .provider import Campaign, Event, events, shuffled

ATOMIC_PATHS = (
    "/webhooks/{provider}/",
    "/class/{provider}/",
    "/decorated/stripe/",
    "/decorated-async/stripe/",
)
LEASED_PATHS = ("/class-leased/{provider}/", "/decorated-leased/stripe/")


@pytest.mark.parametrize("atomic_requests", [True, pytest.param(False, marks=only_when_full)])
def test_each_face_gives_each_event_one_effect(
    start: Start,
    atomic_requests: bool,
    size: Callable[[int, int], int],
    figures: Callable[..., None],
) -> None:
    """WB-037, WB-038, WB-051: a third of the events fail once, with copies around them."""
    server = start(workers=4, database={"ATOMIC_REQUESTS": atomic_requests}, LEASE=30, WAIT=1)
    atomic: list[Event] = []
    leased: list[Event] = []
    for number, event in enumerate(events(size(300, 24), plan={"after": 2})):
        paths, sent = (ATOMIC_PATHS, atomic) if number % 3 else (LEASED_PATHS, leased)
        path = paths[number % len(paths)]
        provider = event.provider if "{" in path else "stripe"
        plan = {"after": 2, "failures": 1 if number % 3 == 1 or number % 4 == 0 else 0}
        sent.append(replace(event, provider=provider, path=path, plan=plan))
    tally = Campaign(server.port, shuffled(atomic + leased, 4)).run()
    figures(events=len(atomic + leased), **tally.figures())
    assert set(tally.statuses) <= {200, 409, 500, 503}
    assert tally.given_up == []
    assert_finished({event.id for event in atomic + leased})
    counted = effects()
    assert {event.id: counted[event.id] for event in atomic} == {event.id: 1 for event in atomic}
    assert {event.id: counted[event.id] for event in leased} == {
        event.id: 1 + event.plan["failures"] for event in leased
    }
    assert server.journal.lines("overlap") == []
    # The failures are still there when everything around them was rolled back.
    failed = sum(event.plan["failures"] for event in atomic + leased)
    stored = HandlerRun.objects.exclude(error_class="").count()
    assert failed * 0.5 <= stored <= failed
    assert WebhookEvent.objects.filter(attempts__gt=1).count() >= stored
    assert_quiet(server)
