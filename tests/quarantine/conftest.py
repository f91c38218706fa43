"""A wrong secret, deliveries that are refused for it, and the right one again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import settings as configured
from django.db import connection
from django.test import Client

from django_webhook_idempotency.models import WebhookEvent
from tests.app.models import Effect
from tests.deliveries import body_of, signed_headers

PROVIDERS = ("sangho", "github", "stripe", "slack", "standard_webhooks")
RIGHT: dict[str, str] = {
    slug: own["SECRETS"][0] for slug, own in configured.WEBHOOK_IDEMPOTENCY["PROVIDERS"].items()
}
WRONG: dict[str, str] = {
    slug: "whsec_" + "B" * 44 if slug == "standard_webhooks" else "whsec_deployed_by_mistake"
    for slug in PROVIDERS
}
#: The size of the issue's figures, or that of every day.
FULL = os.environ.get("WEBHOOK_HAMMER") == "full"


@pytest.fixture
def configure(settings: Any) -> Callable[..., None]:
    """Give a function that deploys secrets, with options for all providers."""

    def deploy(secrets: dict[str, str], **options: Any) -> None:
        settings.WEBHOOK_IDEMPOTENCY = {
            **options,
            "PROVIDERS": {slug: {"SECRETS": [secret]} for slug, secret in secrets.items()},
        }

    return deploy


@pytest.fixture
def wrong(configure: Callable[..., None]) -> None:
    """Deploy the wrong secrets."""
    configure(WRONG)


@pytest.fixture
def effects(handlers: Any) -> None:
    """Let every event have an effect."""
    handlers.add(effect)


def effect(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id, name=event.provider)


def send(
    client: Client,
    provider: str,
    event_id: str = "evt_1",
    *,
    path: str = "",
    secret: str | None = None,
    address: str = "192.0.2.1",
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
    timestamp: int | None = None,
) -> Any:
    """POST a delivery that is signed as its provider does, from an address."""
    body = body_of(provider, event_id) if body is None else body
    signed = signed_headers(
        provider, body, event_id, secret=secret or RIGHT[provider], timestamp=timestamp
    )
    return client.generic(
        "POST",
        path or f"/webhooks/{provider}/",
        body,
        "application/json",
        headers={**signed, **(headers or {})},
        REMOTE_ADDR=address,
    )


def happened() -> list[str]:
    """The ids of the events that had an effect, each as often as it had."""
    return sorted(Effect.objects.values_list("event_id", flat=True))


def everything_stored(model: Any) -> str:
    """All that a table holds, as text."""
    return json.dumps(list(model.objects.values()), default=repr)


@contextmanager
def statements_about(table: str) -> Iterator[list[str]]:
    """Collect the statements that name a table, however many others there are."""
    found: list[str] = []

    def collect(execute: Any, sql: str, *rest: Any) -> Any:
        if table in sql:
            found.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(collect):
        yield found
