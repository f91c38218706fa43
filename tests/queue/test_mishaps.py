"""Commits whose answer is lost, modules that nobody can import, handlers that change their mind."""

from __future__ import annotations

import threading
import time
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
from django_webhook_idempotency.dispatch import claimer, patience
from django_webhook_idempotency.dispatch.claims import Claim
from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import give_back, run_claim
from django_webhook_idempotency.dispatch.queued_run import QueuedRun
from django_webhook_idempotency.dispatch.sweeper import sweep
from django_webhook_idempotency.dispatch.wakeup import Bell
from django_webhook_idempotency.dispatch.work import Result
from django_webhook_idempotency.enums import EventStatus, Outcome
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


def test_a_handler_that_rejected_is_not_called_again_after_a_kill(
    client: Client,
    handlers: Any,
    drain: Callable[[], int],
    later: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker dies after the run is stored and before the event is."""

    def reject(event: WebhookEvent) -> None:
        effect(event)
        raise Reject("never")

    handlers.add(reject, atomic=False)
    deliver(client, "stripe")
    claim = Rotation().claim()
    assert claim is not None
    with monkeypatch.context() as killed:
        killed.setattr(QueuedRun, "settle", lambda self: Result(Outcome.FAILED, self.event))
        run_claim(claim)
    assert stored().status == EventStatus.PROCESSING
    later()
    drain()
    assert stored().status == EventStatus.DEAD
    assert Effect.objects.count() == 1


def test_a_handler_that_gave_up_in_the_request_is_not_called_by_a_worker(
    client: Client,
    handlers: Any,
    drain: Callable[[], int],
    later: Callable[..., None],
    configure: Callable[..., None],
) -> None:
    calls: list[str] = []

    def fail(event: WebhookEvent) -> None:
        calls.append(event.event_id)
        raise ValueError

    configure(PROCESSING="inline")
    handlers.add(fail, name="once", max_attempts=1)
    handlers.add(effect, name="good")
    deliver(client, "stripe")
    later()
    drain()
    assert len(calls) == 1
    assert (stored().status, Effect.objects.count()) == (EventStatus.DEAD, 1)


def test_a_redelivery_gives_a_dead_event_its_attempts_anew(
    client: Client,
    handlers: Any,
    drain: Callable[[], int],
    later: Callable[..., None],
    configure: Callable[..., None],
) -> None:
    calls: list[int] = []

    def fail(event: WebhookEvent) -> None:
        calls.append(event.attempts)
        raise ValueError

    def exhaust() -> None:
        for _ in range(4):
            drain()
            later()
        assert stored().status == EventStatus.DEAD

    configure(MAX_ATTEMPTS=2)
    handlers.add(fail)
    deliver(client, "stripe")
    exhaust()
    deliver(client, "stripe")
    exhaust()
    assert calls == [1, 2, 3, 4]
    deliver(client, "stripe")
    # A kill is one attempt, and not the last.
    assert Rotation().claim() is not None
    later()
    drain()
    assert calls == [1, 2, 3, 4, 6]


def test_the_turn_of_a_handler_that_is_through_holds_nobody_back(
    client: Client,
    handlers: Any,
    drain: Callable[[], int],
    later: Callable[..., None],
    configure: Callable[..., None],
) -> None:
    """It succeeded in a request meanwhile, and another handler of its event did not."""
    seen: list[str] = []
    handlers.add(lambda event: seen.append(event.event_id), name="ordered", ordering_key="object")

    def fail(event: WebhookEvent) -> None:
        if event.event_id == "evt_1":
            raise ValueError

    handlers.add(fail, name="other")
    deliver(client, "stripe", "evt_1", object="key")
    configure(PROCESSING="inline")
    deliver(client, "stripe", "evt_1", object="key")
    configure(PROCESSING="queued")
    deliver(client, "stripe", "evt_2", object="key")
    later(event_id="evt_1")
    drain()
    assert WebhookEvent.objects.get(event_id="evt_1").status == EventStatus.FAILED
    assert seen == ["evt_1", "evt_2"]
    assert WebhookEvent.objects.get(event_id="evt_2").status == EventStatus.PROCESSED


def test_what_has_to_run_alone_waits_a_bounded_time(
    client: Client, handlers: Any, later: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler hangs beside an event that has ended two workers."""
    monkeypatch.setattr(patience, "ALONE_WAIT", 0.3)
    handlers.add(effect)
    for number in (1, 2, 3):
        deliver(client, "stripe", f"evt_{number}")
    taker = claimer.Claimer(Bell(), None, once=False)
    hung = taker.take()
    assert hung is not None
    WebhookEvent.objects.exclude(pk=hung.event.pk).filter(event_id="evt_2").update(
        attempts=2, status=EventStatus.PROCESSING
    )
    later(event_id="evt_2")
    claim = taker.take()
    assert claim is not None
    assert claim.event.event_id == "evt_3"
    put_off = WebhookEvent.objects.get(event_id="evt_2")
    assert (put_off.status, put_off.attempts) == (EventStatus.PROCESSING, 2)
    later(event_id="evt_2")
    again = Rotation().claim()
    assert again is not None
    assert (again.event.event_id, again.abandoned) == ("evt_2", True)


@pytest.fixture
def abandon(client: Client) -> Callable[[str], None]:
    """Give a function that stores an event which has ended three workers."""

    def store(event_id: str) -> None:
        past = timezone.now() - timedelta(seconds=1)
        deliver(client, "stripe", event_id)
        WebhookEvent.objects.filter(event_id=event_id).update(
            attempts=3,
            status=EventStatus.PROCESSING,
            lease_token="lost",
            lease_expires_at=past,
            next_attempt_at=past,
        )

    return store


@pytest.mark.parametrize("itself_alone", [False, True])
def test_what_has_to_run_alone_waits_once_for_what_hangs(
    client: Client,
    handlers: Any,
    abandon: Callable[[str], None],
    later: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    itself_alone: bool,
) -> None:
    monkeypatch.setattr(patience, "ALONE_WAIT", 0.5)
    monkeypatch.setattr("django_webhook_idempotency.dispatch.lanes.REFRESH", 0)
    handlers.add(effect)
    if itself_alone:
        abandon("evt_hangs")
    else:
        deliver(client, "stripe", "evt_hangs")
    taker = claimer.Claimer(Bell(), None, once=False)
    hung = taker.take()
    assert hung is not None
    for number in range(6):
        deliver(client, "github", f"evt_{number}")
    waiting = {"evt_a", "evt_b"}
    for event_id in waiting:
        abandon(event_id)
    started = time.monotonic()
    for _ in range(6):
        claim = taker.take()
        assert claim is not None
        assert claim.event.provider == "github"
        run_claim(claim)
        taker.done(claim, settled=True)
        later(event_id__in=waiting)
    assert time.monotonic() - started < 1.5
    taker.done(hung, settled=True)
    alone = taker.take()
    assert alone is not None
    assert alone.event.event_id in waiting


@pytest.mark.once
def test_who_waits_too_short_waits_longer_the_next_time(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(client, "stripe")
    running = [Claim(stored(), token) for token in ("long", "short")]
    waits = patience.Patience()
    assert waits.seconds(running) == patience.ALONE_WAIT
    waits.lose(running)
    assert waits.seconds([]) == 0
    monkeypatch.setattr(patience, "PAUSE", 0)
    waits = patience.Patience()
    waits.lose(running)
    assert waits.seconds(running[:1]) == 0
    assert waits.seconds([Claim(stored(), "new")]) == 2 * patience.ALONE_WAIT


def test_a_worker_that_stops_forgets_no_event_that_has_to_run_alone(
    client: Client,
    handlers: Any,
    abandon: Callable[[str], None],
    later: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither while that waits nor while it runs."""
    monkeypatch.setattr(claimer, "TICK", 0.05)
    handlers.add(effect)
    deliver(client, "stripe", "evt_1")
    taker = claimer.Claimer(Bell(), None, once=False)
    assert taker.take() is not None
    abandon("evt_2")
    stop = threading.Timer(0.3, taker.stop)
    stop.start()
    assert taker.take() is None
    stop.join()
    claim = Rotation().claim()
    assert claim is not None
    assert (claim.event.event_id, claim.event.attempts, claim.abandoned) == ("evt_2", 4, True)
    assert give_back(claim)
    assert not WebhookEvent.objects.held_by(claim.event.pk, claim.token).exists()
    claim = Rotation().claim()
    assert claim is not None
    assert (claim.event.event_id, claim.event.attempts, claim.abandoned) == ("evt_2", 4, True)


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


def test_a_beat_that_meets_the_end_of_its_run_raises_no_alarm(
    client: Client, handlers: Any, drain: Callable[[], int], monkeypatch: Any, caplog: Any
) -> None:
    """A renewal waits for the run's commit, and then finds that the lease has been given up."""
    monkeypatch.setattr("django_webhook_idempotency.dispatch.heartbeat.BEATS", 60_000)
    handlers.add(lambda event: time.sleep(0.003))
    for number in range(60):
        deliver(client, "stripe", f"evt_{number}")
    assert drain() == 60
    assert [line.getMessage() for line in caplog.records if "lease" in line.getMessage()] == []
