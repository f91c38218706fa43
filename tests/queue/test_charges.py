"""Who is charged with a loss: the handler that ran, and nobody else, whatever happened before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from django_webhook_idempotency.dispatch import losses, queued_run
from django_webhook_idempotency.dispatch.claims import Claim
from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import give_back, run_claim
from django_webhook_idempotency.dispatch.queued_run import QueuedRun
from django_webhook_idempotency.dispatch.runs import WriterBusy
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.exceptions import Reject, Retry
from django_webhook_idempotency.models import HandlerRun, WebhookEvent
from django_webhook_idempotency.replay import replay
from tests.app.models import Effect
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)

#: What ends a worker in the middle of a handler, as far as the database can tell.
Killed = KeyboardInterrupt


def effect(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id)


def stored() -> WebhookEvent:
    return WebhookEvent.objects.get()


def run_one() -> Claim | None:
    claim = Rotation().claim()
    if claim is not None:
        with suppress(Killed):
            run_claim(claim)
    return claim


def run_all(later: Callable[..., None]) -> None:
    """Let leases and waits run out until nothing is left to run."""
    for _ in range(8):
        later()
        if run_one() is None:
            return


class Calls:
    """Counts its calls; raises, or does, what it is given, one after the other."""

    def __init__(self, *planned: Any) -> None:
        self.planned, self.calls = list(planned), 0

    def __call__(self, event: WebhookEvent) -> None:
        self.calls += 1
        step = self.planned.pop(0) if self.planned else None
        if isinstance(step, BaseException) or step is Killed:
            raise step
        if step is not None:
            step()


def test_a_handler_that_rests_is_not_charged_with_the_losses_of_a_replayed_one(
    client: Client, handlers: Any, configure: Any, later: Callable[..., None]
) -> None:
    configure(MAX_ATTEMPTS=2)
    resting, killing = Calls(Retry(after=3600)), Calls(None, *[Killed] * 9)
    handlers.add(resting, name="resting", atomic=False)
    handlers.add(killing, name="killing", atomic=False)
    deliver(client, "stripe")
    run_one()
    replay([stored()], by="ann", reason="again", handler="killing")
    run_one()
    run_all(later)
    lost = HandlerRun.objects.filter(finished_at=None).values_list("handler", flat=True)
    assert set(lost) == {"killing"}
    assert killing.calls - 1 <= 2


def test_what_is_given_back_is_no_loss_after_an_earlier_one(
    client: Client, handlers: Any, configure: Any, later: Callable[..., None]
) -> None:
    configure(MAX_ATTEMPTS=2)
    claims: list[Claim] = []
    unlucky = Calls(Killed, lambda: give_back(claims[-1]))
    handlers.add(unlucky, name="unlucky", atomic=False)
    handlers.add(effect, name="fine", atomic=False)
    deliver(client, "stripe")
    run_one()
    later()
    claim = Rotation().claim()
    assert claim is not None
    claims.append(claim)
    run_claim(claim)
    assert (unlucky.calls, Effect.objects.count()) == (2, 1)
    run_all(later)
    assert stored().status == EventStatus.PROCESSED


def test_nor_is_a_run_that_never_began_for_a_busy_writer(
    client: Client, handlers: Any, configure: Any, later: Callable[..., None], monkeypatch: Any
) -> None:
    configure(MAX_ATTEMPTS=2)
    unlucky = Calls(Killed)
    handlers.add(unlucky, name="unlucky")
    handlers.add(effect, name="fine")
    deliver(client, "stripe")
    run_one()
    later()
    take = QueuedRun.take_write_lock
    seen: list[bool] = []

    def busy(self: QueuedRun) -> None:
        seen.append(True)
        if len(seen) == 2:
            raise WriterBusy("busy")
        take(self)

    with monkeypatch.context() as patched:
        patched.setattr(QueuedRun, "take_write_lock", busy)
        run_one()
    assert (unlucky.calls, Effect.objects.count()) == (1, 1)
    run_all(later)
    assert (unlucky.calls, stored().status) == (2, EventStatus.PROCESSED)


def test_a_redelivery_is_for_all_though_a_replay_for_one_was_given_back(
    client: Client, handlers: Any, drain: Callable[[], int]
) -> None:
    one, other = Calls(Reject("no")), Calls()
    handlers.add(one, name="one")
    handlers.add(other, name="other")
    deliver(client, "stripe")
    drain()
    assert stored().status == EventStatus.DEAD
    replay([stored()], by="ann", reason="again", handler="other")
    claim = Rotation().claim()
    assert claim is not None and give_back(claim)
    assert deliver(client, "stripe").json()["status"] == "accepted"
    drain()
    assert (one.calls, stored().status) == (2, EventStatus.PROCESSED)


def test_a_busy_writer_while_a_loss_is_charged_is_no_other_loss(
    client: Client, handlers: Any, configure: Any, later: Callable[..., None], monkeypatch: Any
) -> None:
    configure(MAX_ATTEMPTS=2)
    unlucky = Calls(Killed)
    handlers.add(unlucky, name="unlucky", atomic=False)
    deliver(client, "stripe")
    run_one()
    later()

    def locked(*arguments: Any, **options: Any) -> None:
        raise OperationalError("database is locked")

    with monkeypatch.context() as busy:
        busy.setattr(losses, "note_start", locked)
        busy.setattr(queued_run, "is_locked", lambda error: True)
        run_one()
    run_all(later)
    assert (unlucky.calls, stored().status) == (2, EventStatus.PROCESSED)


def test_an_error_without_a_name_is_a_failure(
    client: Client, handlers: Any, later: Callable[..., None]
) -> None:
    nameless = Calls(type("", (Exception,), {})("x"))
    handlers.add(nameless, name="nameless", atomic=False)
    deliver(client, "stripe")
    run_one()
    assert stored().status == EventStatus.FAILED
    run_all(later)
    assert (nameless.calls, stored().status) == (2, EventStatus.PROCESSED)


def test_a_start_that_is_noted_after_the_event_was_given_back_is_no_loss(
    client: Client, handlers: Any, configure: Any, later: Callable[..., None], monkeypatch: Any
) -> None:
    """The grace of a worker is over just before its thread begins a run."""
    configure(MAX_ATTEMPTS=2)
    one, other = Calls(ValueError("first")), Calls()
    handlers.add(one, name="one", atomic=False, ordering_key=lambda event: "one")
    handlers.add(other, name="other", atomic=False, ordering_key=lambda event: "other")
    deliver(client, "stripe")
    run_one()
    later()
    claim = Rotation().claim()
    assert claim is not None
    note_start = losses.note_start

    def late(*arguments: Any, **options: Any) -> None:
        assert give_back(claim)
        note_start(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(queued_run, "note_start", late)
        run_claim(claim)
    assert one.calls == 1
    run_all(later)
    assert (one.calls, stored().status) == (2, EventStatus.PROCESSED)
