"""What recovery remembers: how far each source was looked through, and what is missing."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class RecoveryCursor(models.Model):
    """How far a source was looked through: whatever it sent before that is settled."""

    #: The provider, and which of its hooks or accounts.
    source = models.CharField(_("source"), max_length=255, unique=True)
    settled_until = models.DateTimeField(_("settled until"))
    updated_at = models.DateTimeField(_("updated at"), default=timezone.now)
    #: Held by the run that looks through the source now.
    lease_token = models.CharField(
        _("lease token"), max_length=32, blank=True, default="", editable=False
    )
    lease_expires_at = models.DateTimeField(_("lease expires at"), null=True, blank=True)

    class Meta:
        verbose_name = _("recovery cursor")
        verbose_name_plural = _("recovery cursors")

    def __str__(self) -> str:
        return self.source


class MissingEvent(models.Model):
    """An event that its provider sent and that we have asked for, until it is here or too old."""

    dedupe_key = models.CharField(_("dedupe key"), max_length=64, unique=True, editable=False)
    provider = models.CharField(_("provider"), max_length=64)
    #: That of the `RecoveryCursor`.
    source = models.CharField(_("source"), max_length=255)
    scope = models.CharField(_("scope"), max_length=255, blank=True)
    event_id = models.CharField(_("event id"), max_length=255)
    event_type = models.CharField(_("event type"), max_length=255, blank=True)
    sent_at = models.DateTimeField(_("sent at"))
    #: When the provider can no longer send or give it; None if that is not known.
    leaves_at = models.DateTimeField(_("leaves the window at"), null=True, blank=True)
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    asked_at = models.DateTimeField(_("asked at"), null=True, blank=True)
    given_up = models.BooleanField(_("given up"), default=False)

    class Meta:
        verbose_name = _("missing event")
        verbose_name_plural = _("missing events")
        indexes = [
            models.Index(fields=["provider", "sent_at"], name="webhook_missing_sent"),
            models.Index(fields=["source", "given_up", "id"], name="webhook_missing_source"),
            models.Index(fields=["leaves_at"], name="webhook_missing_leaves"),
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.event_id}"
