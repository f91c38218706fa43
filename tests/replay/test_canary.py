"""The first of each group runs, and the others only if that went well; pace and time limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import run_claim
from django_webhook_idempotency.models import Replay, WebhookEvent
from django_webhook_idempotency.replay import Choice, Fate, Report, replay
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)

Drain = Callable[[], int]


class Picky:
    """A handler that raises as the event's type says: `KeyError.a` raises a KeyError."""

    def __init__(self) -> None:
        self.broken = {"KeyError", "ValueError"}
        self.seen: list[str] = []

    def __call__(self, event: WebhookEvent) -> None:
        self.seen.append(event.event_id)
        name = event.event_type.partition(".")[0]
        if name in self.broken:
            raise {"KeyError": KeyError}.get(name, ValueError)(name)


@pytest.fixture
def picky(client: Client, handlers: Any, drain: Drain, processing: str, configure: Any) -> Picky:
    """Give a handler that failed on two kinds of events, three of each, and on no third one."""
    configure(BACKOFF=timedelta(days=9), BACKOFF_MAX=timedelta(days=9))
    handler = Picky()
    handlers.add(handler, name="picky")
    for number in range(3):
        for kind in ("KeyError", "ValueError", "fine"):
            deliver(client, "stripe", f"{kind}_{number}", f"{kind}.{number}")
    drain()
    handler.seen.clear()
    return handler


@pytest.fixture
def worker(picky: Picky, processing: str) -> Any:
    """Let a worker run beside the test, if the events are queued."""
    if processing == "inline":
        yield
        return
    over = threading.Event()

    def work() -> None:
        rotation = Rotation()
        while not over.is_set():
            claim = rotation.claim()
            if claim is None:
                time.sleep(0.01)
            else:
                run_claim(claim)
        connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    yield
    over.set()
    thread.join()


def again(**options: Any) -> Report:
    return replay(Choice().events(), by="ann", reason="repaired", canary=True, **options)


@pytest.mark.usefixtures("worker")
def test_a_group_is_held_back_whose_first_event_fails(picky: Picky, drain: Drain) -> None:
    picky.broken = {"KeyError"}
    report = again()
    assert not report.is_good
    assert (report.counts[Fate.FAILED], report.counts[Fate.HELD_BACK]) == (1, 2)
    assert report.counts[Fate.PROCESSED] + report.counts[Fate.QUEUED] == 3
    wait_for(lambda: WebhookEvent.objects.filter(status="processed").count() == 6)
    assert sorted(picky.seen) == ["KeyError_0", "ValueError_0", "ValueError_1", "ValueError_2"]
    assert Replay.objects.count() == 4
    held = WebhookEvent.objects.filter(event_type__startswith="KeyError", replays=None)
    assert set(held.values_list("status", flat=True)) == {"failed"}
    assert {line.note for line in report.first if line.fate == Fate.HELD_BACK} != {""}


@pytest.mark.usefixtures("worker")
def test_nothing_is_held_back_where_all_is_well(picky: Picky) -> None:
    picky.broken = set()
    assert again().is_good
    wait_for(lambda: WebhookEvent.objects.filter(status="processed").count() == 9)
    assert len(picky.seen) == 6


def test_a_group_whose_first_event_comes_to_no_end_is_not_touched(
    picky: Picky, processing: str
) -> None:
    if processing == "inline":
        return
    started = time.monotonic()
    report = again(timeout=0.3)
    assert report.counts == {Fate.UNDECIDED: 2, Fate.HELD_BACK: 4}
    assert 0.6 <= time.monotonic() - started < 5
    assert Replay.objects.count() == 2


def test_finished_events_are_grouped_by_type(picky: Picky, processing: str) -> None:
    if processing == "queued":
        return
    WebhookEvent.objects.filter(event_id="fine_2").update(event_type="fine.1")
    picky.broken = {"fine"}
    events = Choice(statuses=["processed"]).events()
    report = replay(events, by="ann", reason="x", canary=True)
    assert report.counts == {Fate.FAILED: 2, Fate.HELD_BACK: 1}


def test_one_that_is_refused_says_nothing_of_its_group(picky: Picky, processing: str) -> None:
    if processing == "queued":
        return
    picky.broken = set()
    WebhookEvent.objects.filter(event_id="KeyError_0").update(body=None)
    report = again()
    assert report.counts == {Fate.REFUSED: 1, Fate.PROCESSED: 5}


def test_not_more_than_so_many_a_second(picky: Picky) -> None:
    picky.broken = set()
    started = time.monotonic()
    replay(Choice().events(), by="ann", reason="x", rate=20)
    assert 0.25 <= time.monotonic() - started < 5


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_of_nothing_is_refused_before_anything(rate: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        replay(Choice().events(), by="ann", reason="x", rate=rate)


def test_nothing_is_begun_after_its_time(picky: Picky) -> None:
    report = replay(Choice().events(), by="ann", reason="x", max_seconds=0)
    assert report.counts == {Fate.LEFT: 6}
    assert not report.is_good
    assert picky.seen == []


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
