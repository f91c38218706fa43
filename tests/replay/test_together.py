"""A replay beside others: never next to a running one, killed in the middle, in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import run_claim
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.models import HandlerRun, Replay, WebhookEvent
from django_webhook_idempotency.replay import Choice, Fate, Refusal, Report, replay
from django_webhook_idempotency.replay.arming import Request, arm
from tests.app.models import Effect
from tests.deliveries import deliver
from tests.replay.conftest import Recorder, stored

pytestmark = pytest.mark.django_db(transaction=True)

Drain = Callable[[], int]
ROOT = Path(__file__).resolve().parents[2]


class Alone:
    """A handler that notes when two of it run at once for one event."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: set[str] = set()
        self.calls: list[str] = []
        self.together = 0

    def __call__(self, event: WebhookEvent) -> None:
        with self.lock:
            self.together += event.event_id in self.running
            self.running.add(event.event_id)
            self.calls.append(event.event_id)
        time.sleep(0.02)
        with self.lock:
            self.running.discard(event.event_id)


def in_threads(count: int, work: Callable[[], object]) -> None:
    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "leased"])
def test_two_replays_at_once_run_each_event_once(
    client: Client, handlers: Any, drain: Drain, processing: str, atomic: bool
) -> None:
    alone = Alone()
    handlers.add(alone, atomic=atomic)
    for number in range(8):
        deliver(client, "stripe", f"evt_{number}")
    drain()
    alone.calls.clear()
    seen = list(Choice(statuses=["processed"]).events())
    reports: list[Report] = []
    started = time.monotonic()
    in_threads(4, lambda: reports.append(replay(seen, by="ann", reason="x")))
    # None waits for a worker where only another replay has looked at the event.
    assert time.monotonic() - started < 30
    drain()
    assert sorted(alone.calls) == [f"evt_{number}" for number in range(8)]
    assert alone.together == 0
    assert Replay.objects.count() == 8
    refused = sum((report.refusals for report in reports[1:]), reports[0].refusals)
    assert sum(refused.values()) == 24
    assert set(refused) <= {Refusal.CHANGED, Refusal.RUNNING}


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "leased"])
def test_never_beside_a_worker_or_a_redelivery(
    client: Client, handlers: Any, drain: Drain, processing: str, atomic: bool
) -> None:
    alone = Alone()
    handlers.add(alone, atomic=atomic)
    deliver(client, "stripe")
    drain()
    over = threading.Event()

    def work() -> None:
        rotation = Rotation()
        while not over.is_set():
            claim = rotation.claim()
            if claim is not None:
                run_claim(claim)
            deliver(Client(), "stripe")

    def ask() -> None:
        for _ in range(5):
            replay(WebhookEvent.objects.all(), by="ann", reason="x", timeout=5)
            time.sleep(0.05)

    workers = threading.Thread(target=lambda: in_threads(2, work))
    workers.start()
    in_threads(2, ask)
    over.set()
    workers.join()
    drain()
    assert alone.together == 0
    assert stored().status == EventStatus.PROCESSED
    # An event that was pending already is asked for twice, and runs once.
    asked = Replay.objects.exclude(status_before=EventStatus.PENDING).count()
    assert len(alone.calls) == HandlerRun.objects.count() == 1 + asked > 2


class Held:
    """An atomic handler that another thread holds up."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()
        self.calls = 0

    def __call__(self, event: WebhookEvent) -> None:
        self.calls += 1
        if self.calls == 2:
            self.entered.set()
            assert self.go.wait(10)


@pytest.mark.only_on("postgresql", "mysql")
@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "leased"])
def test_an_event_that_a_request_runs_is_refused(
    client: Client, handlers: Any, configure: Any, atomic: bool
) -> None:
    """Also where its row shows nothing, since the request has it locked."""
    configure(PROCESSING="inline", WAIT=0.5)
    held = Held()
    failing = Recorder(ValueError())
    handlers.add(held, atomic=atomic)
    handlers.add(failing, atomic=atomic)
    deliver(client, "github")
    seen = stored()
    held.calls = 1
    handlers.add(held, atomic=atomic, name="late")
    request = threading.Thread(target=lambda: in_threads(1, lambda: deliver(Client(), "github")))
    request.start()
    assert held.entered.wait(10)
    report = replay([seen], by="ann", reason="x")
    held.go.set()
    request.join()
    assert report.refusals == {Refusal.RUNNING: 1}
    assert stored().status == EventStatus.PROCESSED
    assert not Replay.objects.exists()


SCRIPT = """
import django
django.setup()
from django_webhook_idempotency.handlers import registry, Handler
from django.core.management import call_command
from tests.app.models import Effect
import time

def slow(event):
    Effect.objects.create(event_id=event.event_id, name="killed")
    print("inside", flush=True)
    time.sleep(60)

registry.add(Handler(slow, "stripe", "*", {atomic}, "h"))
call_command("replay_webhooks", **{options})
"""


def effect(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id)


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "leased"])
def test_a_replay_that_is_killed_loses_nothing(
    client: Client, handlers: Any, drain: Drain, configure: Any, database_url: str, atomic: bool
) -> None:
    configure(PROCESSING="inline")
    handlers.add(
        lambda event: Effect.objects.create(event_id=event.event_id), name="h", atomic=atomic
    )
    deliver(client, "stripe")
    options = {"statuses": ["processed"], "reason": "x", "by": "ann", "yes": True}
    script = SCRIPT.format(atomic=atomic, options=options)
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONPATH": str(ROOT),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "inside":
            break
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    event = stored()
    assert (event.status, event.attempts) == (EventStatus.PROCESSING, 2)
    assert Replay.objects.count() == 1
    report = replay([event], by="ann", reason="once more")
    assert report.refusals == {Refusal.RUNNING: 1}
    past = timezone.now() - timedelta(seconds=1)
    WebhookEvent.objects.update(lease_expires_at=past, next_attempt_at=past)
    report = replay([event], by="ann", reason="once more")
    assert report.counts == {Fate.PROCESSED: 1}
    assert stored().status == EventStatus.PROCESSED
    assert Effect.objects.filter(name="").count() == 2
    assert Effect.objects.filter(name="killed").count() == (0 if atomic else 1)


def test_a_worker_goes_on_with_a_replay_that_was_killed(
    client: Client, handlers: Any, drain: Drain, configure: Any
) -> None:
    """After the arming, and before the run."""
    configure(PROCESSING="inline")
    handler = Recorder()
    handlers.add(handler)
    deliver(client, "stripe")
    arm(stored(), Request("ann", "x"))
    assert stored().status == EventStatus.PENDING
    assert drain() == 1
    assert (stored().status, handler.calls) == (EventStatus.PROCESSED, 2)


class TestOrder:
    def version(self, client: Client, drain: Drain, number: int) -> None:
        deliver(client, "stripe", f"evt_{number}", data={"object": {"id": "sub"}}, created=number)
        drain()

    def test_an_older_state_is_superseded(
        self, client: Client, handlers: Any, drain: Drain, configure: Any
    ) -> None:
        configure(PROCESSING="queued")
        handler = Recorder(ValueError())
        handlers.add(handler, ordering_key="data.object.id", version="created", max_attempts=1)
        self.version(client, drain, 1)
        self.version(client, drain, 2)
        assert list(statuses()) == ["dead", "processed"]
        replay(Choice().events(), by="ann", reason="x")
        drain()
        assert list(statuses()) == ["superseded", "processed"]
        assert handler.calls == 2

    def test_without_a_version_it_runs_in_its_turn(
        self, client: Client, handlers: Any, drain: Drain, processing: str
    ) -> None:
        seen: list[str] = []
        handlers.add(lambda event: seen.append(event.event_id), ordering_key="data.object.id")
        for number in range(3):
            self.version(client, drain, number)
        seen.clear()
        report = replay(Choice(statuses=["processed"]).events(), by="ann", reason="x")
        drain()
        assert report.is_good
        assert seen == ["evt_0", "evt_1", "evt_2"]
        assert set(statuses()) == {"processed"}

    def test_one_that_has_to_wait_is_left_to_the_workers(
        self, client: Client, handlers: Any, drain: Drain, configure: Any
    ) -> None:
        """The one before it has failed, and is to be tried again later."""
        configure(PROCESSING="queued", BACKOFF=timedelta(hours=1))
        handlers.add(Recorder(ValueError()), ordering_key="data.object.id")
        self.version(client, drain, 1)
        self.version(client, drain, 2)
        assert list(statuses()) == ["failed", "pending"]
        configure(PROCESSING="inline")
        started = time.monotonic()
        second = Choice(event_ids=["evt_2"]).events()
        report = replay(second, by="ann", reason="x")
        assert report.counts == {Fate.QUEUED: 1}
        assert time.monotonic() - started < 5
        assert list(statuses()) == ["failed", "pending"]


def statuses() -> Any:
    return WebhookEvent.objects.order_by("pk").values_list("status", flat=True)


def test_an_interrupted_run_is_given_back(
    client: Client, handlers: Any, drain: Drain, configure: Any
) -> None:
    configure(PROCESSING="inline")
    handler = Recorder(None, KeyboardInterrupt())
    handlers.add(handler, atomic=False)
    deliver(client, "stripe")
    with pytest.raises(KeyboardInterrupt):
        replay(WebhookEvent.objects.all(), by="ann", reason="x")
    assert stored().lease_token == ""
    assert drain() == 1
    assert (stored().status, handler.calls) == (EventStatus.PROCESSED, 3)
