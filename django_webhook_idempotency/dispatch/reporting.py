"""Tell the log and the signals what became of a delivery; after its commit, never in its way."""

from __future__ import annotations

import logging

from ..enums import EventStatus, Outcome
from ..models import WebhookEvent
from ..signals import (
    webhook_dead,
    webhook_duplicate,
    webhook_failed,
    webhook_processed,
    webhook_received,
)
from .run_log import word
from .work import DeliveryReport, Result

logger = logging.getLogger("django_webhook_idempotency")

_FIELDS = (
    "webhook provider=%s event=%s type=%s outcome=%s status=%s retry=%s retry_reason=%s "
    "duration_ms=%.1f conflict=%s error=%s note=%s"
)


def first_line(error: BaseException) -> str:
    """An error's class and the first line of its text; what follows may quote a row."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"


def log_delivery(
    report: DeliveryReport,
    event: WebhookEvent | None,
    level: int = logging.INFO,
    error: BaseException | None = None,
) -> None:
    """Write one line on a delivery; no payload, header or secret is in it.

    Of an error only its class: its text and traceback stand on the event's page in the admin.
    """
    if report.outcome == Outcome.FAILED:
        level = logging.ERROR
    elif report.conflict or report.outcome == Outcome.REJECTED:
        level = logging.WARNING
    logger.log(
        level,
        _FIELDS,
        report.provider.key,
        word(event.event_id) if event else "-",
        word(event.event_type) if event else "-",
        report.outcome.value,
        report.status,
        report.redelivery.number if report.redelivery.number is not None else "-",
        word(report.redelivery.reason),
        report.duration.total_seconds() * 1000,
        "yes" if report.conflict else "no",
        type(error).__name__ if error is not None else "-",
        word(report.note),
    )
    deadline = report.provider.deadline
    if deadline is not None and report.duration.total_seconds() > deadline:
        logger.warning(
            "webhook answered too late: provider=%s took %.1f s of %.1f s",
            report.provider.key,
            report.duration.total_seconds(),
            deadline,
        )


def announce(result: Result, event: WebhookEvent, report: DeliveryReport) -> None:
    """Send the signals of a delivery; a receiver that raises is logged by Django, not raised."""
    sent = {"sender": WebhookEvent, "event": event, "delivery": report}
    webhook_received.send_robust(**sent)
    if result.outcome == Outcome.PROCESSED:
        webhook_processed.send_robust(**sent)
    elif result.outcome == Outcome.DUPLICATE:
        webhook_duplicate.send_robust(**sent)
    elif result.outcome == Outcome.FAILED:
        webhook_failed.send_robust(**sent, error=result.error)
        if event.status == EventStatus.DEAD:
            webhook_dead.send_robust(**sent, error=result.error)
