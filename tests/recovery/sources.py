"""Sources of a project's own: one that gives the bodies out, and the state behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from django_webhook_idempotency.providers import Identity, Provider
from django_webhook_idempotency.recovery import Sent, Source
from django_webhook_idempotency.views import WebhookView
from tests.app.models import Effect


def sent(event_id: str, age: timedelta = timedelta(hours=1), **more: Any) -> Sent:
    """An event as the source below gives it out."""
    event_type = more.pop("event_type", "invoice.paid")
    values = {
        "identity": Identity(event_id, event_type),
        "sent_at": datetime.now(UTC) - age,
        "accepted": False,
        "body": json.dumps({"id": event_id, "type": event_type}).encode(),
    }
    return Sent(**values | more)


class Ledger(Source):
    """Gives out what a test has put into it."""

    horizon = timedelta(days=30)
    events: ClassVar[list[Sent]] = []
    asked: ClassVar[list[datetime]] = []
    problem: ClassVar[BaseException | None] = None

    @classmethod
    def configured(cls, provider: Provider, options: Mapping[str, Any]) -> list[Source]:
        return [cls(provider, name) for name in options.get("ACCOUNTS", ["main"])]

    def sent(self, since: datetime) -> Iterator[Sent]:
        Ledger.asked.append(since)
        for each in self.events:
            if each.sent_at >= since:
                yield each
        if self.problem is not None:
            raise self.problem


class Unready(Ledger):
    """One that trips over what RECOVERY says."""

    @classmethod
    def configured(cls, provider: Provider, options: Mapping[str, Any]) -> list[Source]:
        raise KeyError(options["KEY"])


class Till(WebhookView):
    """A view class that handles what it receives by itself."""

    provider = "stripe"

    def handle(self, event: Any) -> None:
        Effect.objects.create(event_id=event.event_id, name="till")


class NoSource:
    """Not what SOURCE should name."""


def token() -> str:
    return "sk_public_and_only_for_the_tests"


def broken_token() -> str:
    raise ValueError("the vault said: sk_secret")
