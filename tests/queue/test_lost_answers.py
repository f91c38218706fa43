"""The end of an event is committed, and the connection breaks before the answer: it was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency import ledger
from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import give_back, run_claim
from django_webhook_idempotency.enums import EventStatus, Outcome
from django_webhook_idempotency.exceptions import Reject
from django_webhook_idempotency.models import HandlerRun, HandlerTurn, WebhookDelivery, WebhookEvent
from django_webhook_idempotency.signals import webhook_dead, webhook_processed
from tests.app.models import Effect
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)


def effect(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id)


def reject(event: WebhookEvent) -> None:
    raise Reject("no")


def stored(event_id: str = "evt_1") -> WebhookEvent:
    return WebhookEvent.objects.get(event_id=event_id)


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """Collect the events that are said to be processed or dead."""
    events: list[str] = []

    def note(event: WebhookEvent, **more: Any) -> None:
        events.append(f"{event.event_id} {event.status}")

    for signal in (webhook_processed, webhook_dead):
        signal.connect(note)
    yield events
    for signal in (webhook_processed, webhook_dead):
        signal.disconnect(note)


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Give a function that calls another one, and loses the answer to the finish in it, once."""
    finish, transact = ledger.write_finish, ledger.own_transaction
    written: list[bool] = []
    lost: list[bool] = []

    def break_off() -> None:
        if written and not lost:
            lost.append(True)
            connections["default"].close()
            raise OperationalError("server closed the connection unexpectedly")

    def mark(*args: Any) -> None:
        finish(*args)
        written.append(True)
        if not connections["default"].in_atomic_block:
            break_off()

    @contextmanager
    def commit(using: str) -> Iterator[None]:
        with transact(using):
            yield
        break_off()

    def run(what: Callable[[], Any]) -> Any:
        with monkeypatch.context() as broken:
            broken.setattr(ledger, "write_finish", mark)
            broken.setattr(ledger, "own_transaction", commit)
            result = what()
        assert lost
        return result

    return run


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("atomic", [True, False])
def test_what_is_processed_is_announced_and_lets_the_next_in(
    client: Client, handlers: Any, lose: Any, heard: list[str], atomic: bool, count: int
) -> None:
    for number in range(count):
        handlers.add(effect, name=f"h{number}", ordering_key="object", atomic=atomic)
    deliver(client, "stripe", "evt_1", object="key")
    deliver(client, "stripe", "evt_2", object="key")
    claim = Rotation().claim()
    assert lose(lambda: run_claim(claim)).outcome == Outcome.PROCESSED
    assert heard == ["evt_1 processed"]
    assert (stored().status, Effect.objects.count()) == (EventStatus.PROCESSED, count)
    assert not HandlerRun.objects.exclude(error_class="").exists()
    assert HandlerTurn.objects.filter(event=stored()).count() == 0
    assert (stored("evt_2").next_attempt_at or timezone.now()) <= timezone.now()


def test_what_is_dead_is_announced(
    client: Client, handlers: Any, lose: Any, heard: list[str]
) -> None:
    handlers.add(reject, atomic=False, ordering_key="object")
    deliver(client, "stripe", object="key")
    claim = Rotation().claim()
    assert lose(lambda: run_claim(claim)).outcome == Outcome.FAILED
    assert heard == ["evt_1 dead"]
    assert not HandlerTurn.objects.exists()


def test_what_is_buried_is_announced_and_lets_the_next_in(
    client: Client,
    handlers: Any,
    lose: Any,
    heard: list[str],
    later: Callable[..., None],
    configure: Callable[..., None],
) -> None:
    configure(MAX_ATTEMPTS=1)
    handlers.add(effect, ordering_key="object")
    deliver(client, "stripe", "evt_1", object="key")
    deliver(client, "stripe", "evt_2", object="key")
    assert Rotation().claim() is not None
    later(event_id="evt_1")
    WebhookEvent.objects.filter(event_id="evt_2").update(
        next_attempt_at=timezone.now() + timedelta(hours=1)
    )
    claim = Rotation().claim()
    lose(lambda: run_claim(claim))
    assert heard == ["evt_1 dead"]
    assert not HandlerTurn.objects.filter(event=stored()).exists()
    assert (stored("evt_2").next_attempt_at or timezone.now()) <= timezone.now()


def test_what_is_given_back_is(client: Client, handlers: Any, lose: Any) -> None:
    handlers.add(effect)
    deliver(client, "stripe")
    claim = Rotation().claim()
    assert lose(lambda: give_back(claim))
    assert (stored().status, stored().attempts) == (EventStatus.PENDING, 0)


def test_what_is_processed_under_a_lease_in_a_request_is_no_duplicate(
    client: Client, handlers: Any, lose: Any, configure: Callable[..., None]
) -> None:
    configure(PROCESSING="inline")
    handlers.add(effect, atomic=False)
    answer = lose(lambda: deliver(client, "stripe"))
    assert (answer.status_code, answer.json()["status"]) == (200, "processed")
    assert WebhookDelivery.objects.get().outcome == Outcome.PROCESSED
    assert Effect.objects.count() == 1


def test_what_somebody_else_has_written_is_theirs(
    client: Client,
    handlers: Any,
    drain: Callable[[], int],
    later: Callable[..., None],
    heard: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection breaks before anything is written, and another worker is faster."""
    handlers.add(effect, atomic=False)
    deliver(client, "stripe")
    claim = Rotation().claim()
    assert claim is not None
    finish = ledger.write_finish
    broken: list[bool] = []

    def break_off(event: WebhookEvent, token: str, changes: Any) -> None:
        if not broken:
            broken.append(True)
            later()
            drain()
            connections["default"].close()
            raise OperationalError("server closed the connection unexpectedly")
        finish(event, token, changes)

    monkeypatch.setattr(ledger, "write_finish", break_off)
    assert run_claim(claim).outcome == Outcome.DUPLICATE
    assert heard == ["evt_1 processed"]
