"""Leases: taken over when they run out, kept alive while work lasts, and fenced at the finish."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.dispatch.leased_run import LeasedRun
from django_webhook_idempotency.dispatch.work import Result
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.models import HandlerRun, WebhookDelivery, WebhookEvent
from tests.app.models import Effect
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def quick(settings: Any) -> None:
    settings.WEBHOOK_IDEMPOTENCY = {
        **settings.WEBHOOK_IDEMPOTENCY,
        "WAIT": 0,
        "LEASE": timedelta(seconds=0.6),
    }


def effect(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id)


def abandoned(**changes: Any) -> WebhookEvent:
    """The row that a process leaves when it is killed in its handler."""
    event = WebhookEvent.objects.get()
    WebhookEvent.objects.update(
        **{
            "status": EventStatus.PROCESSING,
            "lease_token": "f" * 32,
            "lease_expires_at": timezone.now() + timedelta(seconds=60),
            "processed_at": None,
            **changes,
        }
    )
    return event


def kill_in_handler(event: WebhookEvent) -> None:
    raise SystemExit


def test_a_killed_process_keeps_others_out_until_its_lease_ends(
    client: Client, handlers: Any
) -> None:
    """WB-016, WB-017, WB-018: refused while the lease lives, taken over when it has run out."""
    handlers.add(kill_in_handler, atomic=False, name="h")
    with pytest.raises(SystemExit):
        deliver(client, "github")
    event = WebhookEvent.objects.get()
    assert (event.status, event.attempts) == ("processing", 1)
    handlers.add(effect, atomic=False, name="h")
    assert deliver(client, "github").status_code == 409
    assert not Effect.objects.exists()
    time.sleep(0.7)
    assert deliver(client, "github").json()["status"] == "processed"
    event.refresh_from_db()
    assert (event.status, event.attempts, Effect.objects.count()) == ("processed", 2, 1)


def test_a_live_lease_keeps_an_atomic_handler_out_too(client: Client, handlers: Any) -> None:
    handlers.add(effect, name="h")
    deliver(client, "sangho")
    abandoned()
    assert deliver(client, "sangho").status_code == 503
    WebhookEvent.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert deliver(client, "sangho").json()["status"] == "processed"
    assert Effect.objects.count() == 2


def test_a_heartbeat_keeps_the_lease(client: Client, handlers: Any) -> None:
    """Work that outlasts its lease stays the only one."""
    copies = []

    def slow(event: WebhookEvent) -> None:
        effect(event)
        time.sleep(1.2)
        copies.append(deliver(Client(), "sangho").status_code)

    handlers.add(slow, atomic=False)
    assert deliver(client, "sangho").json()["status"] == "processed"
    assert copies == [503]
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("fails", [True, False])
def test_a_finish_without_the_lease_does_not_count(
    client: Client, handlers: Any, fails: bool
) -> None:
    """Fencing: somebody took the event over, so what this run makes of it is not written."""

    def stalled(event: WebhookEvent) -> None:
        WebhookEvent.objects.update(lease_token="e" * 32)
        if fails:
            raise ValueError("broken")

    handlers.add(stalled, atomic=False)
    answer = deliver(client, "sangho")
    assert (answer.status_code, answer.json()["status"]) == (503, "in_progress")
    event = WebhookEvent.objects.get()
    assert (event.status, event.lease_token) == ("processing", "e" * 32)
    assert "lease ran out" in WebhookDelivery.objects.get().note


def test_one_that_stalled_before_its_handler_does_not_call_it(
    client: Client, handlers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the claim and the handler the lease ran out, and another delivery did it all."""
    whole, stalled = LeasedRun.run_all, [True]

    def stall(self: LeasedRun) -> Result:
        if stalled:
            stalled.clear()
            time.sleep(0.7)
            assert deliver(Client(), "sangho").json()["status"] == "processed"
        return whole(self)

    monkeypatch.setattr(LeasedRun, "run_all", stall)
    handlers.add(effect, atomic=False)
    assert deliver(client, "sangho").json()["status"] == "duplicate"
    assert Effect.objects.count() == 1


def test_an_overtaken_run_of_a_finished_event_is_a_duplicate(client: Client, handlers: Any) -> None:
    def stalled(event: WebhookEvent) -> None:
        WebhookEvent.objects.update(status=EventStatus.PROCESSED, lease_token="")

    handlers.add(stalled, atomic=False)
    assert deliver(client, "sangho").json()["status"] == "duplicate"


def test_an_atomic_handler_beside_a_leased_one_is_fenced(client: Client, handlers: Any) -> None:
    """Its writes are undone when the lease is somebody else's by the time it commits."""

    def stalled(event: WebhookEvent) -> None:
        WebhookEvent.objects.update(lease_token="e" * 32)

    handlers.add(stalled, atomic=False)
    handlers.add(effect)
    assert deliver(client, "sangho").status_code == 503
    assert not Effect.objects.exists()


def test_runs_of_a_leased_handler_are_stored(client: Client, handlers: Any) -> None:
    handlers.add(effect, atomic=False, name="h")
    deliver(client, "sangho")
    run = HandlerRun.objects.get()
    assert (run.handler, run.number, run.succeeded) == ("h", 1, True)


def test_what_has_succeeded_is_not_run_again(client: Client, handlers: Any) -> None:
    """Killed between the handler's end and the finish: the run's row remembers."""
    handlers.add(effect, atomic=False, name="h")
    deliver(client, "sangho")
    abandoned(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert deliver(client, "sangho").json()["status"] == "processed"
    assert Effect.objects.count() == 1


def test_the_idempotency_key_is_the_same_in_every_run(client: Client, handlers: Any) -> None:
    """WB-027: what to pass on to another API."""
    keys = []

    def charge(event: WebhookEvent) -> None:
        keys.append((event.idempotency_key("charge"), event.idempotency_key("mail")))
        if len(keys) == 1:
            raise ValueError("broken")

    handlers.add(charge, atomic=False)
    deliver(client, "sangho")
    deliver(client, "sangho")
    assert keys[0] == keys[1]
    assert keys[0][0] != keys[0][1]
    assert len(keys[0][0]) == 64
