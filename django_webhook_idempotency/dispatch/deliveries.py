"""Write the rows of deliveries that changed nothing; never in the way of their answer."""

from __future__ import annotations

import logging
import threading
import time

from django.db import DatabaseError

from .. import ledger
from ..models import WebhookDelivery, WebhookEvent
from .work import DeliveryReport

logger = logging.getLogger("django_webhook_idempotency")

#: Rows of unverified deliveries that one process writes at once, and then each second.
STRANGER_BURST = 100
STRANGERS_PER_SECOND = 1.0
#: Seconds that a row which only tells of a delivery waits for SQLite's lock.
ROW_PATIENCE = 1.0


class Throttle:
    """A token bucket for each key: so many at once, then so many a second."""

    def __init__(self, burst: int, rate: float) -> None:
        self.burst = burst
        self.rate = rate
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}

    def allows(self, key: str) -> bool:
        """Take one token if there is one."""
        with self._lock:
            now = time.monotonic()
            tokens, since = self._buckets.get(key, (float(self.burst), now))
            tokens = min(self.burst, tokens + (now - since) * self.rate)
            allowed = tokens >= 1
            self._buckets[key] = (tokens - 1 if allowed else tokens, now)
            return allowed

    def forget(self) -> None:
        """Start again with full buckets."""
        with self._lock:
            self._buckets.clear()


strangers = Throttle(STRANGER_BURST, STRANGERS_PER_SECOND)


def record(report: DeliveryReport, event: WebhookEvent | None) -> None:
    """Write the row of a verified delivery. A database that fails here is logged, not raised."""
    try:
        with ledger.bounded_lock_wait(ledger.alias(), ROW_PATIENCE):
            report.save(event, ledger.alias())
    except DatabaseError as error:
        logger.warning("webhook delivery row not written: %s", type(error).__name__)


def record_stranger(report: DeliveryReport) -> None:
    """Write the row of a delivery that proved nothing, within bounds.

    Neither the rows nor the work of writing them grow with what strangers send: one process
    writes a bounded number a second, and the newest `rejected_limit` of each outcome are kept.
    """
    provider = report.provider
    if not provider.store_deliveries or not strangers.allows(provider.key):
        return
    try:
        deliveries = WebhookDelivery.objects.using(ledger.alias())
        with ledger.bounded_lock_wait(deliveries.db, ROW_PATIENCE):
            deliveries.insert_bounded(report.row(None), provider.rejected_limit)
    except DatabaseError as error:
        logger.warning("webhook delivery row not written: %s", type(error).__name__)
