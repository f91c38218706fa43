"""Make events, deliveries and runs as a receiver leaves them, without receiving anything."""

from __future__ import annotations

import hashlib
import json
import random
import traceback
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from django_webhook_idempotency.enums import EventStatus, Outcome
from django_webhook_idempotency.models import (
    HandlerRun,
    WebhookDelivery,
    WebhookEvent,
    digest_of,
)

FORM = "application/x-www-form-urlencoded"
FINGERPRINT = hashlib.sha256(b"public dummy").hexdigest()[:8]


class Sample:
    """Writes events with their deliveries and runs, the same ones each time."""

    def __init__(self) -> None:
        self.random = random.Random(7)
        self.now = timezone.now().replace(microsecond=412_000)

    def token(self, length: int = 16) -> str:
        """An id such as providers make."""
        alphabet = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz23456789"
        return "".join(self.random.choices(alphabet, k=length))

    def event(
        self,
        provider: str,
        event_id: str,
        event_type: str,
        document: Any,
        status: EventStatus = EventStatus.PROCESSED,
        *,
        minutes: float = 0,
        **more: Any,
    ) -> WebhookEvent:
        """One event, received so many minutes ago."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        received = self.now - timedelta(minutes=minutes)
        scope = more.pop("scope", "")
        values = {
            "attempts": 1,
            "processed_at": received,
            "handled_by": "shop.webhooks.book" if status == EventStatus.PROCESSED else "",
            "content_type": "application/json",
            **more,
        }
        return WebhookEvent.objects.create(
            provider=provider,
            scope=scope,
            event_id=event_id,
            dedupe_key=digest_of(provider, scope, event_id),
            event_type=event_type,
            status=status,
            body=body,
            body_digest=hashlib.sha256(body).hexdigest(),
            received_at=received,
            **values,
        )

    def delivery(
        self,
        event: WebhookEvent | None,
        outcome: Outcome,
        status: int = 200,
        milliseconds: float = 12,
        *,
        after: timedelta = timedelta(0),
        **more: Any,
    ) -> WebhookDelivery:
        """One delivery, so long after its event."""
        provider = more.pop("provider", event.provider if event else "github")
        since = event.received_at if event else self.now
        return WebhookDelivery.objects.create(
            event=event,
            provider=provider,
            received_at=since + after,
            outcome=outcome,
            status=status,
            duration=timedelta(milliseconds=milliseconds),
            body_digest=event.body_digest if event else "",
            secret_fingerprint=more.pop("secret_fingerprint", FINGERPRINT if event else ""),
            headers=more.pop("headers", headers_of(provider, event)),
            **more,
        )

    def run(
        self, event: WebhookEvent, number: int, error: Exception | None = None, **more: Any
    ) -> HandlerRun:
        """One run of a handler."""
        started: datetime = event.received_at + timedelta(minutes=5 * (number - 1))
        values: dict[str, Any] = {"finished_at": started + timedelta(milliseconds=230)}
        if error is not None:
            values |= {
                "error_class": type(error).__name__,
                "error_message": str(error),
                "traceback": "".join(traceback.format_exception(error)),
            }
        return HandlerRun.objects.create(
            event=event,
            handler=more.pop("handler", "shop.webhooks.book"),
            number=number,
            started_at=started,
            **{**values, **more},
        )


def headers_of(provider: str, event: WebhookEvent | None) -> dict[str, str]:
    """The headers that are kept of a provider's deliveries."""
    agents = {
        "github": "GitHub-Hookshot/044aadd",
        "stripe": "Stripe/1.0 (+https://stripe.com/docs/webhooks)",
        "slack": "Slackbot 1.0 (+https://api.slack.com/robots)",
        "sangho": "Sangho-Webhooks/2.1",
        "standard_webhooks": "Svix-Webhooks/1.57.0 (sender-9YMgn; +https://www.svix.com/http-sender/)",
    }
    headers = {
        "content-type": event.content_type if event else "application/json",
        "content-length": str(len(event.body or b"")) if event else "212",
        "user-agent": agents.get(provider, "curl/8.5.0"),
    }
    if provider == "github" and event is not None:
        headers |= {
            "x-github-delivery": event.event_id,
            "x-github-event": event.event_type.split(".")[0],
            "x-github-hook-id": event.scope,
        }
    return headers


def raised(error: Exception) -> Exception:
    """An exception with a traceback."""
    try:
        raise error
    except Exception as caught:
        return caught
