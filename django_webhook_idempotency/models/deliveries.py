"""One row a delivery: what happened, and never consulted to decide."""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from ..enums import Origin, Outcome
from ..querysets import WebhookDeliveryQuerySet
from .events import WebhookEvent


class WebhookDelivery(models.Model):
    """One HTTP request that carried an event; written once and never consulted to decide."""

    # No constraint in the database: checking it would lock the event's row, and a copy would
    # wait for the handler that holds it.
    event = models.ForeignKey(
        WebhookEvent,
        verbose_name=_("event"),
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        db_constraint=False,
        db_index=False,  # the index below finds an event's newest deliveries without a sort
        related_name="deliveries",
    )
    provider = models.CharField(_("provider"), max_length=64)
    received_at = models.DateTimeField(_("received at"), default=timezone.now)
    origin = models.CharField(
        _("origin"), max_length=16, choices=Origin.choices, default=Origin.REQUEST
    )
    outcome = models.CharField(_("outcome"), max_length=16, choices=Outcome.choices)
    status = models.PositiveSmallIntegerField(_("answered"))
    duration = models.DurationField(_("duration"), default=timedelta(0))
    retry_number = models.PositiveSmallIntegerField(_("retry number"), null=True, blank=True)
    retry_reason = models.CharField(_("retry reason"), max_length=64, blank=True)
    headers = models.JSONField(_("headers"), default=dict, blank=True)
    body_digest = models.CharField(_("body digest"), max_length=64, blank=True)
    secret_fingerprint = models.CharField(_("secret"), max_length=8, blank=True)
    conflict = models.BooleanField(_("body differs"), default=False)
    note = models.CharField(_("note"), max_length=255, blank=True)

    objects = WebhookDeliveryQuerySet.as_manager()

    class Meta:
        verbose_name = _("webhook delivery")
        verbose_name_plural = _("webhook deliveries")
        indexes = [
            models.Index(fields=["event", "id"], name="webhook_delivery_event"),
            models.Index(fields=["outcome", "provider", "id"], name="webhook_delivery_outcome"),
            models.Index(fields=["provider", "id"], name="webhook_delivery_provider"),
            models.Index(fields=["received_at"], name="webhook_delivery_received"),
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.outcome}"
