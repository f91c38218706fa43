"""Handlers that end their worker: each is called as often as it may be, and stops no other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import give_back, run_claim
from django_webhook_idempotency.dispatch.queued_run import QueuedRun
from django_webhook_idempotency.dispatch.work import Result
from django_webhook_idempotency.enums import EventStatus, Outcome
from django_webhook_idempotency.exceptions import Retry
from django_webhook_idempotency.models import HandlerRun, HandlerTurn, WebhookEvent
from tests.app.models import Effect
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)


def effect(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id)


class Killer:
    """Ends its worker: in the main thread an interrupt goes through."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, event: WebhookEvent) -> None:
        self.calls.append(event.attempts)
        raise KeyboardInterrupt


def stored(event_id: str = "evt_1") -> WebhookEvent:
    return WebhookEvent.objects.get(event_id=event_id)


@pytest.fixture
def run_on(later: Callable[..., None]) -> Callable[[], None]:
    """Give a function that runs what is due, worker after worker, until nothing is left."""

    def run() -> None:
        for _ in range(12):
            later()
            claim = Rotation().claim()
            if claim is None:
                return
            with suppress(KeyboardInterrupt):
                run_claim(claim)
        pytest.fail("There is no end to it.")

    return run


@pytest.mark.parametrize("key", [None, "object"])
@pytest.mark.parametrize("atomic", [True, False])
class TestEach:
    """Without an order, and where the runs are noted before they start."""

    def test_keeps_no_other_from_running(
        self,
        client: Client,
        handlers: Any,
        run_on: Callable[[], None],
        configure: Any,
        atomic: bool,
        key: str | None,
    ) -> None:
        configure(MAX_ATTEMPTS=3)
        killer = Killer()
        handlers.add(killer, name="a", atomic=atomic, ordering_key=key)
        handlers.add(effect, name="b")
        deliver(client, "stripe", object="key")
        run_on()
        assert killer.calls == [1, 2, 3]
        assert Effect.objects.count() == 1
        assert (stored().status, stored().attempts) == (EventStatus.DEAD, 3)
        assert "WorkerLost" in stored().last_error
        runs = HandlerRun.objects.filter(handler="a", finished_at=None)
        assert list(runs.values_list("error_class", flat=True)) == ["WorkerLost"] * 3

    def test_has_its_own_number_of_attempts(
        self,
        client: Client,
        handlers: Any,
        run_on: Callable[[], None],
        configure: Any,
        atomic: bool,
        key: str | None,
    ) -> None:
        configure(MAX_ATTEMPTS=4)
        first, second = Killer(), Killer()
        handlers.add(effect, name="a", atomic=False)
        handlers.add(first, name="b", atomic=atomic, max_attempts=1)
        handlers.add(second, name="c", atomic=atomic, max_attempts=2, ordering_key=key)
        deliver(client, "stripe", object="key")
        run_on()
        assert (len(first.calls), len(second.calls)) == (1, 2)
        assert Effect.objects.count() == 1
        assert stored().status == EventStatus.DEAD

    def test_is_called_again_when_the_event_is_sent_again(
        self,
        client: Client,
        handlers: Any,
        run_on: Callable[[], None],
        atomic: bool,
        key: str | None,
    ) -> None:
        killer = Killer()
        handlers.add(killer, name="a", atomic=atomic, ordering_key=key, max_attempts=1)
        handlers.add(effect, name="b", atomic=atomic)
        deliver(client, "stripe", object="key")
        run_on()
        assert (len(killer.calls), Effect.objects.count()) == (1, 1)
        deliver(client, "stripe", object="key")
        run_on()
        assert (len(killer.calls), Effect.objects.count()) == (2, 1)


@pytest.mark.parametrize("count", [1, 2])
def test_an_event_whose_handlers_are_all_through_is_processed(
    client: Client,
    handlers: Any,
    run_on: Callable[[], None],
    configure: Any,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
) -> None:
    """Killed in its last attempt, after the runs are committed and before the event is."""
    configure(MAX_ATTEMPTS=1)
    for number in range(count):
        handlers.add(effect, name=f"h{number}", atomic=False)
    deliver(client, "stripe")
    with monkeypatch.context() as killed:
        killed.setattr(QueuedRun, "settle", lambda self: Result(Outcome.FAILED, self.event))
        run_claim(Rotation().claim())
    run_on()
    assert (stored().status, stored().attempts) == (EventStatus.PROCESSED, 1)
    assert Effect.objects.count() == count


def test_what_others_have_used_up_is_not_its_own(
    client: Client,
    handlers: Any,
    run_on: Callable[[], None],
    later: Callable[..., None],
    drain: Callable[[], int],
    configure: Any,
) -> None:
    """One fails as often as it may while the other waits for its order, and loses a worker then."""
    configure(MAX_ATTEMPTS=2)
    ready: list[bool] = []

    def broken(event: WebhookEvent) -> None:
        if event.event_id == "evt_2":
            raise ValueError

    def ordered(event: WebhookEvent) -> None:
        if event.event_id == "evt_1" and not ready:
            raise Retry(after=3600)
        effect(event)

    handlers.add(broken, name="broken")
    handlers.add(ordered, name="ordered", ordering_key="object")
    deliver(client, "stripe", "evt_1", object="key")
    drain()
    deliver(client, "stripe", "evt_2", object="key")
    for _ in range(2):
        HandlerTurn.objects.filter(others_at__isnull=False).update(others_at=timezone.now())
        later(event_id="evt_2")
        drain()
    ready.append(True)
    later(event_id="evt_1")
    drain_one = Rotation().claim()
    run_claim(drain_one)
    killed = Rotation().claim()
    assert killed is not None
    assert killed.event.event_id == "evt_2"
    run_on()
    assert list(Effect.objects.values_list("event_id", flat=True)) == ["evt_1", "evt_2"]


def test_a_loss_is_not_forgotten_when_the_event_is_given_back(
    client: Client, handlers: Any, later: Callable[..., None], run_on: Callable[[], None]
) -> None:
    """By a worker that has to stop before it has called anything, say."""
    killer = Killer()
    handlers.add(killer, max_attempts=1)
    deliver(client, "stripe")
    with suppress(KeyboardInterrupt):
        run_claim(Rotation().claim())
    later()
    claim = Rotation().claim()
    assert claim is not None
    assert give_back(claim)
    assert (stored().attempts, stored().status) == (1, EventStatus.PROCESSING)
    run_on()
    assert (killer.calls, stored().status) == ([1], EventStatus.DEAD)


def test_a_run_that_is_given_back_is_no_loss(
    client: Client, handlers: Any, drain: Callable[[], int]
) -> None:
    """A worker that has to stop gives back what it runs, at no cost."""
    claims: list[Any] = []

    def stop(event: WebhookEvent) -> None:
        if claims:
            assert give_back(claims.pop())

    handlers.add(stop, name="a", ordering_key="object", atomic=False, max_attempts=1)
    handlers.add(effect, name="b")
    deliver(client, "stripe", object="key")
    claim = Rotation().claim()
    claims.append(claim)
    run_claim(claim)
    assert (stored().status, HandlerRun.objects.count()) == (EventStatus.PENDING, 0)
    drain()
    assert stored().status == EventStatus.PROCESSED
    assert not HandlerRun.objects.filter(finished_at=None).exists()
