"""Many events at once through the embedded engine: nothing lost, and how fast."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest

from django_webhook_idempotency.models import WebhookEvent

from .conftest import Start, only_when_full
from .latency import Timed, handler_times, milliseconds, queue_waits
from .ledger_state import assert_quiet, effects
from .provider import Event, events
from .workers import Work

# SQLite has one writer at a time, which the other hammers show in less time.
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.only_on("postgresql", "mysql"),
]

#: How much slower than another an acknowledgement may be because of its handler.
ALLOWED = 1.5


def test_two_workers_drain_a_flood(
    start: Start,
    work: Work,
    size: Callable[[int, int], int],
    figures: Callable[..., None],
) -> None:
    """WB-077: every event that was accepted takes effect once."""
    server = start(workers=2, PROCESSING="queued")
    workers = [work() for _ in range(2)]
    sent = events(size(20_000, 300))
    started = time.monotonic()
    campaign = Timed(server.port, sent, connections=8)
    tally = campaign.run()
    deadline = time.monotonic() + size(3600, 120)
    unfinished = WebhookEvent.objects.exclude(status="processed")
    while unfinished.exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    seconds = time.monotonic() - started
    figures(
        events=len(sent),
        accepted_per_second=round(len(sent) / tally.seconds, 1),
        drained_per_second=round(len(sent) / seconds, 1),
        receipt_ms=milliseconds(campaign.seconds["hammer.atomic"]),
        wait_ms=milliseconds(queue_waits(server.journal)),
        handler_ms=milliseconds(handler_times(server.journal, set(tally.accepted))),
    )
    assert tally.given_up == []
    assert set(tally.accepted) == {event.id for event in sent}
    assert effects() == {event.id: 1 for event in sent}
    assert server.journal.lines("overlap") == []
    assert len(server.journal.lines("enter")) == len(sent)
    assert [worker.stop() for worker in workers] == [0, 0]
    assert_quiet(server)


@only_when_full
def test_an_acknowledgement_does_not_wait_for_its_handler(
    start: Start, work: Work, figures: Callable[..., None]
) -> None:
    """In one run, events whose handler sleeps five seconds and events whose handler does nothing.

    Both kinds are queued to workers that are busy with the slow ones.
    """
    server = start(workers=2, PROCESSING="queued")
    workers = [work("--concurrency", "4") for _ in range(2)]
    for worker in workers:
        worker.wait_for_line("started")
    slow = events(1000, "hammer.leased", plan={"before": 5000})
    fast = events(1000, "hammer.one_leased")
    mixed: list[Event] = list(itertools.chain.from_iterable(zip(slow, fast, strict=True)))
    campaign = Timed(server.port, mixed, connections=2)
    campaign.run()
    times = {kind: milliseconds(values) for kind, values in campaign.seconds.items()}
    ratio = times["hammer.leased"]["p99"] / times["hammer.one_leased"]["p99"]
    figures(receipt_ms=times, ratio=round(ratio, 2))
    assert len(campaign.tally.accepted) == len(mixed)
    assert server.journal.lines("enter"), "no worker was busy, so nothing was shown"
    assert ratio < ALLOWED
