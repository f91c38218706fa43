"""Deliveries that failed verification, and which secrets verified the others."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class QuarantinedDelivery(models.Model):
    """A delivery that failed verification, as it came, to be verified again.

    `reason` is a `RejectReason`. The signed headers are what the signature was judged by: they are
    never shown, and gone as soon as the delivery is verified or too old.
    """

    provider = models.CharField(_("provider"), max_length=64)
    #: The scope in the URL, and the view class that received it.
    scope = models.CharField(_("scope"), max_length=255, blank=True)
    view = models.CharField(_("view"), max_length=255, blank=True, editable=False)
    reason = models.CharField(_("reason"), max_length=32)
    received_at = models.DateTimeField(_("received at"), default=timezone.now)
    content_type = models.CharField(_("content type"), max_length=255, blank=True)
    body = models.BinaryField(_("body"))
    signed_headers = models.JSONField(_("signed headers"), default=dict, editable=False)

    class Meta:
        verbose_name = _("quarantined delivery")
        verbose_name_plural = _("quarantined deliveries")
        indexes = [
            models.Index(fields=["provider", "reason", "id"], name="webhook_quarantine_reason"),
            models.Index(fields=["received_at"], name="webhook_quarantine_received"),
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.reason}"


class SecretUse(models.Model):
    """When deliveries that a secret verified came first and last; within a minute."""

    provider = models.CharField(_("provider"), max_length=64)
    #: Empty for providers that sign nothing.
    fingerprint = models.CharField(_("secret"), max_length=8, blank=True)
    first_used_at = models.DateTimeField(_("first used at"), default=timezone.now)
    last_used_at = models.DateTimeField(_("last used at"), default=timezone.now)

    class Meta:
        verbose_name = _("use of a secret")
        verbose_name_plural = _("uses of secrets")
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "fingerprint"], name="webhook_secret_use_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.fingerprint}"
