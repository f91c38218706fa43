"""The receiving path through the included URLs."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from django_webhook_idempotency.models import HandlerRun, WebhookDelivery, WebhookEvent
from tests.app.models import Effect
from tests.deliveries import deliver

PROVIDERS = ["sangho", "github", "stripe", "slack", "standard_webhooks"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_copy_has_no_effect(client: Client, handlers: Any, provider: str) -> None:
    handlers.add(lambda event: Effect.objects.create(event_id=event.event_id))
    first = deliver(client, provider)
    copy = deliver(client, provider)
    assert (first.status_code, first.json()) == (200, {"status": "processed", "event": "evt_1"})
    assert (copy.status_code, copy.json()) == (200, {"status": "duplicate", "event": "evt_1"})
    assert Effect.objects.count() == 1
    assert WebhookEvent.objects.get().status == "processed"
    assert list(WebhookDelivery.objects.values_list("outcome", flat=True).order_by("id")) == [
        "processed",
        "duplicate",
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("atomic", [True, False])
def test_a_failed_event_runs_again_when_it_is_redelivered(
    client: Client, handlers: Any, atomic: bool
) -> None:
    calls = []

    def fail_once(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id)
        calls.append(event.data)
        if len(calls) == 1:
            raise ValueError("no")

    handlers.add(fail_once, atomic=atomic)
    first = deliver(client, "github")
    assert (first.status_code, first.json()["status"]) == (500, "failed")
    event = WebhookEvent.objects.get()
    assert (event.status, event.attempts, event.last_error) == ("failed", 1, "ValueError: no")
    assert Effect.objects.count() == (0 if atomic else 1)
    second = deliver(client, "github")
    assert second.status_code == 200, second.content
    assert second.json()["status"] == "processed"
    assert Effect.objects.count() == (1 if atomic else 2)
    assert calls[0] == calls[1]
    assert HandlerRun.objects.count() == 2
    assert deliver(client, "github").json()["status"] == "duplicate"
