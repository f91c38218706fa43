"""Signed deliveries for the tests, made with the schemes' own `sign()`."""

from __future__ import annotations

import json
import time
from typing import Any

from django.test import Client

from django_webhook_idempotency.providers import configured_provider
from django_webhook_idempotency.signatures import Secret


def body_of(provider: str, event_id: str, event_type: str = "thing.happened", **more: Any) -> bytes:
    """A small body of an event as the provider lays it out."""
    if provider == "github":
        return json.dumps({"id": event_id, **more}).encode()
    if provider == "slack":
        event = {"type": event_type, "text": "hi"}
        document = {"type": "event_callback", "event_id": event_id, "event": event}
        return json.dumps({"api_app_id": "A1", "team_id": "T1", **document, **more}).encode()
    return json.dumps({"id": event_id, "type": event_type, **more}).encode()


def signed_headers(
    provider: str,
    body: bytes,
    event_id: str,
    event_type: str = "thing.happened",
    *,
    timestamp: int | None = None,
    secret: str | None = None,
) -> dict[str, str]:
    """The headers that the provider would send with `body`."""
    configured = configured_provider(provider)
    key = Secret.parse(secret) if secret else configured.live_secrets()[0]
    assert configured.scheme is not None
    headers = configured.scheme.sign(
        body,
        key,
        timestamp=int(time.time()) if timestamp is None else timestamp,
        message_id=event_id,
    )
    if provider == "github":
        headers |= {
            "X-GitHub-Delivery": event_id,
            "X-GitHub-Event": event_type,
            "X-GitHub-Hook-ID": "1",
        }
    return headers


def deliver(
    client: Client,
    provider: str,
    event_id: str = "evt_1",
    event_type: str = "thing.happened",
    *,
    path: str = "",
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    content_type: str = "application/json",
    **more: Any,
) -> Any:
    """POST one signed delivery to the included URLs, or to `path`."""
    body = body_of(provider, event_id, event_type, **more) if body is None else body
    # Not `client.post`, which would decode and encode a body with a declared charset again.
    return client.generic(
        "POST",
        path or f"/webhooks/{provider}/",
        body,
        content_type,
        headers={**signed_headers(provider, body, event_id, event_type), **(headers or {})},
    )
