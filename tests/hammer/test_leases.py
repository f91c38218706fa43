"""Leases that run out or are forgotten: the fence before each finish holds."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
import redis

from django_webhook_idempotency.models import HandlerRun, WebhookDelivery, WebhookEvent

from .conftest import Start, only_when_full
from .killer import Killer
from .ledger_state import assert_all_accepted, assert_finished, assert_quiet
from .provider import Campaign, Event, Sending, fresh, post

STORES = ["database", pytest.param("redis", marks=pytest.mark.service("redis"))]


def outcomes() -> list[str]:
    return list(WebhookDelivery.objects.order_by("id").values_list("outcome", flat=True))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("wakes", [pytest.param("after", marks=only_when_full), "during"])
def test_a_worker_that_sleeps_through_its_lease_cannot_finish(
    start: Start, store: str, wakes: str, redis_url: str
) -> None:
    """The stopped worker wakes after, or while, another runs its event; its finish is refused."""
    server = start(workers=3, STORE=store, REDIS_URL=redis_url, LEASE=1, WAIT=0.05)
    event = Event("stripe", fresh("slept"), "hammer.leased", {"after": 1200})
    first = Sending(server.port, event)
    asleep = server.wait_for("wrote").pid
    time.sleep(0.2)
    os.kill(asleep, signal.SIGSTOP)
    try:
        # Still leased: whoever comes now is sent away.
        assert post(server.port, event).status == 503
        time.sleep(1.2)
        second = Sending(server.port, event)
        awake = server.wait_for("enter", count=2)
        assert awake.pid != asleep
        if wakes == "after":
            assert second.answer.word == "processed"
    finally:
        os.kill(asleep, signal.SIGCONT)
    # It slept through the handler's pause, so it is done at once.
    refused = first.answer
    assert second.answer.word == "processed"
    if wakes == "after":
        assert (refused.status, refused.word) == (200, "duplicate")
    else:
        assert (refused.status, refused.word) == (503, "in_progress")
    assert_finished({event.id})
    assert outcomes().count("processed") == 1
    stored = WebhookEvent.objects.get()
    assert (stored.attempts, stored.lease_token) == (2, "")
    assert sorted(HandlerRun.objects.values_list("number", flat=True)) == [1, 2]
    assert WebhookDelivery.objects.filter(note__contains="lease ran out").count() == 1
    assert_quiet(server)


def test_a_heartbeat_keeps_a_lease_that_is_shorter_than_its_work(start: Start) -> None:
    server = start(workers=3, LEASE=1, WAIT=0.05)
    event = Event("stripe", fresh("long"), "hammer.leased", {"after": 3000})
    first = Sending(server.port, event)
    server.wait_for("enter")
    copies = []
    while not server.journal.lines("leave"):
        copies.append(post(server.port, event))
        time.sleep(0.2)
    assert first.answer.word == "processed"
    assert len(copies) > 3
    # The last of them may have come when it was just over.
    assert {copy.status for copy in copies[:-1]} == {503}
    assert len(server.journal.lines("enter")) == 1
    assert_finished({event.id})
    assert_quiet(server)


@pytest.mark.service("redis")
@pytest.mark.parametrize("ends_first", ["the first", "the second"])
def test_a_lease_that_redis_forgot_costs_a_second_run_and_no_second_finish(
    start: Start, redis_url: str, ends_first: str
) -> None:
    server = start(workers=3, STORE="redis", REDIS_URL=redis_url, LEASE=30, WAIT=0.05)
    event = Event("stripe", fresh("forgotten"), "hammer.leased", {"after": 1200})
    first = Sending(server.port, event)
    pid = server.wait_for("enter").pid
    assert post(server.port, event).status == 503
    forget_leases(redis_url)
    second = Sending(server.port, event)
    server.wait_for("enter", count=2)
    assert len(server.journal.lines("overlap")) == 1
    if ends_first == "the second":
        os.kill(pid, signal.SIGSTOP)
        try:
            assert second.answer.word == "processed"
        finally:
            os.kill(pid, signal.SIGCONT)
        assert (first.answer.status, first.answer.word) == (200, "duplicate")
    else:
        assert (first.answer.status, first.answer.word) == (503, "in_progress")
        assert second.answer.word == "processed"
    assert outcomes().count("processed") == 1
    assert_finished({event.id})
    assert post(server.port, event).word == "duplicate"
    # Neither run took the other's lease away, and none is left.
    with redis.Redis.from_url(redis_url) as client:
        assert list(client.scan_iter("webhook-lease:*")) == []
    assert_quiet(server)


@pytest.mark.service("redis")
def test_events_finish_once_however_often_redis_forgets(
    start: Start,
    redis_url: str,
    size: Callable[[int, int], int],
    figures: Callable[..., None],
) -> None:
    """Kills and forgotten leases together: more runs than one, but one finish for each event."""
    server = start(workers=4, STORE="redis", REDIS_URL=redis_url, LEASE=1.5, WAIT=0.05)
    killer = Killer(server, size(60, 4), linger=0.03)
    sent: dict[str, Event] = {}
    forgotten = 0
    over = threading.Event()

    def forget() -> None:
        nonlocal forgotten
        while not over.wait(0.15):
            forget_leases(redis_url)
            forgotten += 1

    def deliveries():
        for event in killer.feed("hammer.leased", at_most=killer.wanted * 60, copies=3):
            sent[event.id] = event
            yield event

    forgetter = threading.Thread(target=forget)
    forgetter.start()
    killer.start()
    try:
        tally = Campaign(server.port, deliveries()).run()
    finally:
        killer.stop()
        over.set()
        forgetter.join()
    figures(
        events=len(sent),
        kills_inside=killer.inside,
        forgotten=forgotten,
        overlaps=len(server.journal.lines("overlap")),
        runs=len(server.journal.lines("enter")),
        **tally.figures(),
    )
    assert_all_accepted(tally, sent.values())
    assert_finished(set(sent))
    assert_quiet(server)


def forget_leases(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
