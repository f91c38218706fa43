"""Tell the log and the signals how a run in a worker ended; after its commit, never in its way."""

from __future__ import annotations

import logging
from datetime import datetime

from django.utils import timezone

from ..enums import EventStatus, Outcome
from ..models import WebhookEvent
from ..signals import webhook_dead, webhook_failed, webhook_processed
from .work import Result

logger = logging.getLogger("django_webhook_idempotency")


def word(text: str) -> str:
    """Text from outside as one word of a log line: no white space, nothing unprintable."""
    return (
        "".join(mark if mark.isprintable() and mark != " " else "?" for mark in text[:100]) or "-"
    )


def log_run(event: WebhookEvent, result: Result, started_at: datetime) -> None:
    """Write one line on a run; of an error only its class.

    `waited_s` is the time from the receipt to the start of this run.
    """
    logger.log(
        logging.ERROR if result.outcome == Outcome.FAILED else logging.INFO,
        "webhook run provider=%s event=%s type=%s outcome=%s status=%s attempt=%s waited_s=%.3f "
        "duration_ms=%.1f error=%s",
        event.provider,
        word(event.event_id),
        word(event.event_type),
        result.outcome.value,
        event.status,
        event.attempts,
        max((started_at - event.received_at).total_seconds(), 0),
        (timezone.now() - started_at).total_seconds() * 1000,
        type(result.error).__name__ if result.error is not None else "-",
    )


def announce_run(event: WebhookEvent, result: Result) -> None:
    """Send the signals of a run; `delivery` is None, since no request is being answered."""
    sent = {"sender": WebhookEvent, "event": event, "delivery": None}
    if result.outcome == Outcome.PROCESSED:
        webhook_processed.send_robust(**sent)
    elif result.outcome == Outcome.FAILED:
        webhook_failed.send_robust(**sent, error=result.error)
        if event.status == EventStatus.DEAD:
            webhook_dead.send_robust(**sent, error=result.error)
