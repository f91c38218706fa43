"""Ordering keys in a request: two events of one key never run at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections
from django.test import Client

from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import run_claim
from django_webhook_idempotency.enums import EventStatus, Outcome
from django_webhook_idempotency.models import OrderingKey, WebhookDelivery, WebhookEvent
from tests.app.models import Effect
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def impatient(settings: Any) -> None:
    settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, "WAIT": 0.3}


@pytest.fixture(autouse=True)
def fresh_ids(monkeypatch: Any) -> None:
    """Let no test send the ids of another.

    MariaDB's purge may not have removed those yet, and then their neighbour in the index is in
    the way of their insert.
    """
    monkeypatch.setattr(f"{__name__}.run", uuid4().hex)


run = ""


class Gate:
    """A handler that lets e1 stay inside until it is told to leave."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()
        self.inside = 0
        self.most = 0

    def __call__(self, event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id[:2])
        self.inside += 1
        self.most = max(self.most, self.inside)
        if event.event_id.startswith("e1"):
            self.entered.set()
            self.leave.wait(20)
        self.inside -= 1


@pytest.fixture
def gate(handlers: Any) -> Gate:
    """Give a handler with an ordering key."""
    gate = Gate()
    handlers.add(gate, name="h", ordering_key="object")
    return gate


def in_thread(target: Callable[[], Any]) -> threading.Thread:
    def run() -> None:
        try:
            target()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def send(event_id: str, key: Any = 1) -> Any:
    return deliver(Client(), "stripe", f"{event_id} {run}", object=key)


def status(event_id: str) -> str:
    return stored(event_id).status


def stored(event_id: str) -> WebhookEvent:
    return WebhookEvent.objects.get(event_id=f"{event_id} {run}")


@pytest.mark.only_on("postgresql", "mysql")
class TestBusy:
    """SQLite has one writer at a time anyway."""

    def test_others_wait_a_bounded_time(self, gate: Gate) -> None:
        send("e0")
        first = in_thread(lambda: send("e1"))
        assert gate.entered.wait(20)
        started = time.monotonic()
        answer = send("e2")
        assert (answer.status_code, answer.json()["status"]) == (503, "in_progress")
        assert answer.headers["Retry-After"]
        assert 0.3 <= time.monotonic() - started < 5
        assert send("e3", key=2).status_code == 200
        gate.leave.set()
        first.join()
        assert status("e1") == EventStatus.PROCESSED
        assert send("e2").json()["status"] == "processed"
        assert sorted(Effect.objects.values_list("event_id", flat=True)) == ["e0", "e1", "e2", "e3"]

    def test_one_that_did_not_get_in_is_stored(self, gate: Gate) -> None:
        """GitHub would not send it again; a worker finds it."""
        send("e0")
        first = in_thread(lambda: send("e1"))
        assert gate.entered.wait(20)
        send("e2")
        event = stored("e2")
        assert (event.status, event.attempts, event.processed_at) == ("pending", 0, None)
        assert WebhookDelivery.objects.get(event=event).outcome == Outcome.IN_PROGRESS
        gate.leave.set()
        first.join()
        claim = Rotation().claim()
        assert claim is not None
        run_claim(claim)
        assert status("e2") == EventStatus.PROCESSED
        assert gate.most == 1

    def test_it_gets_in_as_soon_as_the_other_is_out(self, gate: Gate, settings: Any) -> None:
        settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, "WAIT": 20}
        send("e0")
        first = in_thread(lambda: send("e1"))
        assert gate.entered.wait(20)
        second = in_thread(lambda: send("e2"))
        time.sleep(0.3)
        assert WebhookEvent.objects.count() == 1
        gate.leave.set()
        first.join()
        second.join()
        assert (status("e2"), gate.most) == (EventStatus.PROCESSED, 1)

    def test_a_worker_waits_for_a_request_too(self, gate: Gate, configure: Any) -> None:
        configure(PROCESSING="queued")
        send("e2")
        configure(PROCESSING="inline")
        first = in_thread(lambda: send("e1"))
        assert gate.entered.wait(20)
        run_claim(Rotation().claim())
        assert status("e2") == EventStatus.PENDING
        gate.leave.set()
        first.join()
        # The request calls it when it is through.
        run_claim(Rotation().claim())
        assert (status("e2"), gate.most) == (EventStatus.PROCESSED, 1)


@pytest.fixture
def configure(settings: Any) -> Callable[..., None]:
    def change(**options: Any) -> None:
        settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, **options}

    return change


def test_a_request_waits_for_a_worker(handlers: Any, configure: Callable[..., None]) -> None:
    """Also where the worker's handler shares no transaction that could lock anything."""
    answers: list[Any] = []

    def handler(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id[:2])
        if event.event_id.startswith("e0"):
            handlers.add(lambda event: Effect.objects.create(event_id="no"), name="h", **order)
            configure(PROCESSING="inline")
            answers.append(send("e2"))

    order = {"ordering_key": "object"}
    handlers.add(handler, name="h", atomic=False, **order)
    configure(PROCESSING="queued")
    send("e0")
    run_claim(Rotation().claim())
    assert [answer.json()["status"] for answer in answers] == ["in_progress"]
    assert list(Effect.objects.values_list("event_id", flat=True)) == ["e0"]


def test_a_key_that_is_new_is_made(gate: Gate) -> None:
    assert send("e2").status_code == 200
    assert OrderingKey.objects.get().provider == "stripe"
    assert send("e3").status_code == 200
    assert OrderingKey.objects.count() == 1


def test_a_key_that_cannot_be_read_is_a_failure_of_the_handler(gate: Gate) -> None:
    answer = send("e2", key={"a": 1})
    assert (answer.status_code, answer.json()["status"]) == (500, "failed")
    assert "OrderingError" in WebhookEvent.objects.get().last_error
    assert not Effect.objects.exists()


@pytest.mark.parametrize("beside", [False, True])
def test_without_a_transaction_there_is_no_order(handlers: Any, beside: bool) -> None:
    """Nothing would keep the others out, so it is not even begun."""
    handlers.add(lambda event: None, name="h", atomic=beside, ordering_key="object")
    if beside:
        handlers.add(lambda event: None, atomic=False)
    answer = send("e1")
    assert (answer.status_code, answer.json()["status"]) == (503, "misconfigured")
    assert not WebhookEvent.objects.exists()
