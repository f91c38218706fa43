"""Commits whose answer is lost, modules that nobody can import, handlers that change their mind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency import ledger
from django_webhook_idempotency.dispatch.queued_run import QueuedRun
from django_webhook_idempotency.dispatch.sweeper import sweep
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.exceptions import Ignore, Reject
from django_webhook_idempotency.models import HandlerRun, WebhookEvent
from tests.app.models import Effect
from tests.deliveries import deliver
from tests.queue.mailbox import Mailbox

pytestmark = pytest.mark.django_db(transaction=True)


def effect(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id)


def stored() -> WebhookEvent:
    return WebhookEvent.objects.get()


def test_a_redelivered_dead_event_may_be_ignored(
    client: Client, handlers: Any, drain: Callable[[], int]
) -> None:
    errors: list[Exception] = [Reject("no"), Ignore("not for us")]

    def change_its_mind(event: WebhookEvent) -> None:
        raise errors.pop(0)

    handlers.add(change_its_mind)
    deliver(client, "stripe")
    drain()
    assert stored().status == EventStatus.DEAD
    deliver(client, "stripe")
    drain()
    assert stored().status == EventStatus.IGNORED


def test_an_atomic_handler_whose_commit_lost_its_answer_has_succeeded(
    client: Client, handlers: Any, drain: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers.add(effect, name="first", max_attempts=1)
    handlers.add(effect, name="second", max_attempts=1)
    whole = QueuedRun.call_fenced

    def lose(self: QueuedRun, run: Any) -> Any:
        value = whole(self, run)
        if run.handler.name == "first":
            raise OperationalError("server closed the connection unexpectedly")
        return value

    deliver(client, "stripe")
    monkeypatch.setattr(QueuedRun, "call_fenced", lose)
    drain()
    assert stored().status == EventStatus.PROCESSED
    assert Effect.objects.count() == 2
    assert not HandlerRun.objects.exclude(error_class="").exists()


def test_a_run_whose_commit_lost_its_answer_is_stored_once(
    client: Client, handlers: Any, drain: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers.add(effect, atomic=False, max_attempts=1)
    deliver(client, "stripe")
    fence, transact, lost = QueuedRun.fence, ledger.own_transaction, [False, False]

    def mark(self: QueuedRun) -> None:
        fence(self)
        lost[0] = True

    @contextmanager
    def lose(using: str) -> Iterator[None]:
        with transact(using):
            yield
        if lost == [True, False]:
            lost[1] = True
            connections[using].close()
            raise OperationalError("the answer to COMMIT is lost")

    with monkeypatch.context() as broken:
        broken.setattr(QueuedRun, "fence", mark)
        broken.setattr(ledger, "own_transaction", lose)
        drain()
    assert lost == [True, True]
    assert stored().status == EventStatus.PROCESSED
    assert (HandlerRun.objects.count(), Effect.objects.count()) == (1, 1)


def test_a_module_that_cannot_be_imported_costs_no_attempt(
    client: Client,
    handlers: Any,
    drain: Callable[[], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "broken_by_a_deploy.py").write_text("raise NameError('a typing error')")
    monkeypatch.syspath_prepend(tmp_path)
    handlers.add(effect)
    deliver(client, "stripe")
    WebhookEvent.objects.update(view="broken_by_a_deploy.View")
    assert drain() == 1
    assert (stored().status, stored().attempts) == (EventStatus.PENDING, 0)
    assert "NameError" in stored().last_error


def test_a_lost_message_to_an_old_event_is_sent_again_soon(
    client: Client, handlers: Any, configure: Callable[..., None]
) -> None:
    configure(QUEUE="tests.queue.mailbox.Mailbox")
    handlers.add(effect)
    deliver(client, "stripe")
    now = timezone.now()
    WebhookEvent.objects.update(
        next_attempt_at=now - timedelta(hours=10), enqueued_at=now - timedelta(minutes=11)
    )
    Mailbox.emptied()
    assert sweep() == 1
    assert sweep() == 0
