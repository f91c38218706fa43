"""What an event costs a worker in statements."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_webhook_idempotency.dispatch import lanes
from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import run_claim
from django_webhook_idempotency.models import WebhookEvent
from tests.app.models import Effect
from tests.deliveries import deliver

from .test_statements import INSERT, looks_like, statements

pytestmark = pytest.mark.django_db(transaction=True)

UPDATE = "UPDATE .?django_webhook_idempotency_webhookevent"
#: Candidates outside of a transaction; then one of them is locked and leased. SQLite's lock is an
#: update that changes nothing.
LOCK = [UPDATE] if connection.vendor == "sqlite" else []
CLAIM = ["SELECT", *LOCK, "SELECT", UPDATE]


@pytest.fixture(autouse=True)
def queued(settings: Any, monkeypatch: Any) -> None:
    """Queue everything, and let a look at the sources last longer than a test."""
    settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, "PROCESSING": "queued"}
    monkeypatch.setattr(lanes, "REFRESH", 600)


def effect(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id)


@pytest.mark.parametrize(
    ("atomic", "run"),
    [
        # Handler and end are one transaction.
        (True, [*LOCK, "INSERT INTO .?testapp_effect", UPDATE]),
        # The handler's own; its run behind the fence; the end.
        (False, ["INSERT INTO .?testapp_effect", INSERT + "handlerrun", UPDATE, UPDATE]),
    ],
)
def test_a_claim_costs_three_and_a_run_no_more_than_it_writes(
    client: Client, handlers: Any, atomic: bool, run: list[str]
) -> None:
    handlers.add(effect, atomic=atomic)
    rotation = Rotation()
    for number in range(3):
        deliver(client, "stripe", f"evt_{number}")
    run_claim(rotation.claim())
    with statements() as collected:
        claim = rotation.claim()
    assert looks_like(collected, *CLAIM), collected
    assert [inside for _, inside in collected] == [False, *[True] * (len(CLAIM) - 1)]
    with statements() as collected:
        run_claim(claim)
    assert looks_like(collected, *run), collected
    assert Effect.objects.count() == 2
