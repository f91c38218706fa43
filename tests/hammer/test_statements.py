"""What a delivery costs in statements, and that nothing is held open when it costs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.dispatch.secret_uses import note_use
from django_webhook_idempotency.models import WebhookEvent
from django_webhook_idempotency.providers import configured_provider
from tests.app.models import Effect
from tests.deliveries import body_of, deliver

from .provider import PROVIDERS

pytestmark = pytest.mark.django_db(transaction=True)

FRAME = re.compile(r"(BEGIN(?! NOT)|COMMIT|ROLLBACK|SAVEPOINT|RELEASE SAVEPOINT)\b")
INSERT = (
    r"(BEGIN NOT ATOMIC )?(SET STATEMENT innodb_lock_wait_timeout=0 FOR )?"
    r"INSERT INTO .?django_webhook_idempotency_"
)


@contextmanager
def statements() -> Iterator[list[tuple[str, bool]]]:
    """Collect each statement and whether it ran inside a transaction."""
    collected: list[tuple[str, bool]] = []

    def collect(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not FRAME.match(sql):
            collected.append((sql, connection.in_atomic_block))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(collect):
        yield collected


def looks_like(collected: list[tuple[str, bool]], *patterns: str) -> bool:
    texts = [sql for sql, _ in collected]
    return len(texts) == len(patterns) and all(map(re.match, patterns, texts))


@pytest.fixture(autouse=True)
def handler(handlers: Any) -> None:
    handlers.add(lambda event: Effect.objects.create(event_id=event.event_id), pattern="one.effect")
    connection.ensure_connection()
    # Once a minute a process notes which secrets are in use: it has just done so.
    for provider in PROVIDERS:
        secret = configured_provider(provider).live_secrets()[0]
        note_use(provider, secret.fingerprint, timezone.now())


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_first_delivery_costs_two(client: Client, provider: str) -> None:
    """The event's row and the delivery's; GitHub's look for the same body is in the first."""
    with statements() as collected:
        assert deliver(client, provider, event_type="one.effect").json()["status"] == "processed"
    assert looks_like(
        collected,
        INSERT + "webhookevent",
        "INSERT INTO .?testapp_effect",
        INSERT + "webhookdelivery",
    ), collected
    assert [inside for _, inside in collected] == [True, True, True]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_delivery_that_nobody_handles_costs_two(client: Client, provider: str) -> None:
    with statements() as collected:
        assert deliver(client, provider).json()["status"] == "ignored"
    assert looks_like(collected, INSERT + "webhookevent", INSERT + "webhookdelivery"), collected


@pytest.mark.parametrize("status", ["processed", "ignored", "superseded"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_copy_of_a_finished_event_costs_three_and_holds_nothing(
    client: Client, provider: str, status: str
) -> None:
    deliver(client, provider, event_type="one.effect")
    WebhookEvent.objects.update(status=status)
    with statements() as collected:
        assert deliver(client, provider, event_type="one.effect").json()["status"] == "duplicate"
    assert looks_like(collected, INSERT + "webhookevent", "SELECT", INSERT + "webhookdelivery"), (
        collected
    )
    assert [inside for _, inside in collected] == [True, False, False]
    assert not connection.in_atomic_block
    assert Effect.objects.count() == 1


def test_the_same_body_under_another_guid_is_found_by_the_insert(client: Client) -> None:
    """WB-034: flagged, and not one statement more."""
    body = body_of("github", "same")
    assert deliver(client, "github", "guid-1", "one.effect", body=body).status_code == 200
    with statements() as collected:
        assert deliver(client, "github", "guid-2", "one.effect", body=body).status_code == 200
    assert len(collected) == 3, collected
    assert list(
        WebhookEvent.objects.order_by("id").values_list("deliveries__conflict", flat=True)
    ) == [False, True]


def test_a_leased_delivery_costs_four(client: Client, handlers: Any) -> None:
    """Claim, run, and the end with its delivery; the claim and the run are committed at once."""
    handlers.add(lambda event: None, pattern="two.leased", atomic=False)
    with statements() as collected:
        assert deliver(client, "stripe", event_type="two.leased").json()["status"] == "processed"
    assert looks_like(
        collected,
        INSERT + "webhookevent",
        INSERT + "handlerrun",
        "UPDATE .?django_webhook_idempotency_webhookevent",
        INSERT + "webhookdelivery",
    ), collected
    assert [inside for _, inside in collected] == [False, False, True, True]
