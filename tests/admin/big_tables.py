"""Rows enough that a planner has to choose."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta

from django.utils import timezone

from django_webhook_idempotency.enums import EventStatus, Outcome
from django_webhook_idempotency.models import WebhookDelivery, WebhookEvent

EVENT_ROWS, DELIVERY_ROWS = 60_000, 100_000
PROVIDERS = ["stripe", "stripe", "stripe", "github", "sangho", "slack"]
START = timezone.now() - timedelta(days=800)


def status_of(number: int) -> EventStatus:
    """Mostly processed; a few dead, and at first many ignored."""
    if number % 7_000 == 3:
        return EventStatus.DEAD
    is_old = number < EVENT_ROWS // 4
    return EventStatus.IGNORED if is_old and number % 2 else EventStatus.PROCESSED


def events() -> Iterator[WebhookEvent]:
    """Two years of events: most processed, some types and statuses rare, one provider long silent.

    A planner that trusts in how common the silent one is would walk through all that is newer.
    """
    chance = random.Random(11)
    types = [f"kind_{number}.happened" for number in range(30)]
    for number in range(EVENT_ROWS):
        is_old = number < EVENT_ROWS // 3 and chance.random() < 0.7
        yield WebhookEvent(
            provider="silent" if is_old else chance.choice(PROVIDERS),
            scope=f"tenant_{chance.randrange(200)}",
            event_id=f"evt_{number}",
            dedupe_key=f"{number:064x}",
            event_type="rare.happened" if number % 9_999 == 7 else chance.choice(types),
            status=status_of(number),
            body=b"x" * 300,
            received_at=START + timedelta(minutes=19 * number + chance.randrange(40)),
        )


def deliveries(first: int) -> Iterator[WebhookDelivery]:
    """More deliveries than events, some of none, few with a conflict."""
    chance = random.Random(12)
    for number in range(DELIVERY_ROWS):
        rare = number % 9_000 == 5
        is_old = number < DELIVERY_ROWS // 4 and chance.random() < 0.7
        yield WebhookDelivery(
            event_id=None if number % 20 == 0 else first + number * EVENT_ROWS // DELIVERY_ROWS,
            provider="silent" if is_old else chance.choice(PROVIDERS),
            received_at=START + timedelta(minutes=11 * number + chance.randrange(40)),
            outcome=Outcome.MALFORMED if rare else chance.choice(list(Outcome)[:3]),
            status=200,
            retry_reason="http_timeout" if number % 50 == 0 else "",
            conflict=rare,
            headers={"user-agent": "x" * 80},
        )
