"""A handler that fails after its write: the redelivery runs it, whoever else is at the door."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from django_webhook_idempotency.models import HandlerRun, WebhookEvent

from .conftest import Start
from .ledger_state import assert_exactly_once, assert_finished, assert_quiet, effects
from .provider import PROVIDERS, Answer, Campaign, Event, events, fresh, post, shuffled

#: The answers that a failing event may meet: as planned, still running, done.
EXPECTED = {200, 409, 500, 503}


def test_an_event_that_failed_once_runs_again_among_its_copies(
    start: Start, size: Callable[[int, int], int], figures: Callable[..., None]
) -> None:
    """WB-009: one effect, from the second run."""
    server = start(workers=4)
    sent = events(size(500, 30), plan={"failures": 1, "after": 3})
    tally = Campaign(server.port, shuffled(sent, 5)).run()
    figures(events=len(sent), **tally.figures())
    assert set(tally.statuses) <= EXPECTED
    assert tally.given_up == []
    assert_exactly_once(sent)
    ends = Counter((line.event, line.note) for line in server.journal.lines("leave"))
    assert set(ends.values()) == {1}
    assert len(ends) == 2 * len(sent)
    assert server.journal.lines("overlap") == []
    assert_quiet(server)


def test_a_leased_event_that_failed_once_runs_again(
    start: Start, size: Callable[[int, int], int], figures: Callable[..., None]
) -> None:
    server = start(workers=4, LEASE=30, WAIT=0.2)
    sent = events(size(300, 20), "hammer.leased", plan={"failures": 1, "after": 3})
    tally = Campaign(server.port, shuffled(sent, 5)).run()
    figures(events=len(sent), **tally.figures())
    assert set(tally.statuses) <= EXPECTED
    assert tally.given_up == []
    assert_finished({event.id for event in sent})
    # A leased handler's write stays when it fails, so there are two: one for each run.
    assert set(effects().values()) == {2}
    assert server.journal.lines("overlap") == []
    assert list(WebhookEvent.objects.exclude(attempts=2)) == []
    numbers = Counter(HandlerRun.objects.values_list("event__event_id", "number", "error_class"))
    assert set(numbers.values()) == {1}
    assert len(numbers) == 2 * len(sent)
    assert_quiet(server)


@pytest.mark.parametrize("kind", ["hammer.atomic", "hammer.two"])
def test_copies_that_arrive_while_the_failure_is_being_stored(
    start: Start, kind: str, size: Callable[[int, int], int], figures: Callable[..., None]
) -> None:
    """Between the rollback and the row that says `failed` nothing is stored: ten copies try."""
    server = start(workers=6)
    answers: list[Answer] = []
    sent: list[Event] = []
    for number in range(size(150, 8)):
        provider = PROVIDERS[number % len(PROVIDERS)]
        plan = {"failures": random.choice([1, 1, 2]), "after": 5}
        event = Event(provider, fresh("race"), kind, plan)
        sent.append(event)
        answers += rush(server.port, event)
        final = post(server.port, event)
        while not final.accepted:
            answers.append(final)
            final = post(server.port, event)
    counted = Counter(answer.status for answer in answers)
    figures(rounds=len(sent), statuses=dict(counted))
    assert set(counted) <= EXPECTED
    assert_exactly_once(sent)
    assert server.journal.lines("overlap") == []
    assert_quiet(server)


def rush(port: int, event: Event) -> list[Answer]:
    """The first delivery, and ten copies within the milliseconds in which it fails."""
    answers: list[Answer] = []

    def send(after: float) -> None:
        time.sleep(after)
        answers.append(post(port, event))

    threads = [threading.Thread(target=send, args=(0,))]
    threads += [threading.Thread(target=send, args=(random.uniform(0, 0.04),)) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
