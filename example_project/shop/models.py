"""What the shop books."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils import timezone


class LedgerEntry(models.Model):
    """The effect of one event.

    On purpose nothing here is unique: two rows for one event are a double effect that anybody
    can see. `amount` is in the currency's smallest unit, zero where the event names none.
    """

    provider = models.CharField(max_length=64)
    event_id = models.CharField(max_length=255)
    event_type = models.CharField(max_length=255, blank=True)
    amount = models.BigIntegerField(default=0)
    currency = models.CharField(max_length=3, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    # Django adds it; the type checker reads settings without this app.
    objects: ClassVar[models.Manager[LedgerEntry]]

    class Meta:
        verbose_name_plural = "ledger entries"

    def __str__(self) -> str:
        return f"{self.provider} {self.event_id}"
