"""Deliveries that failed verification; which secrets verified the others, and when."""

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
    #: The scope in the URL, and the view class whose options it is verified with.
    scope = models.CharField(_("scope"), max_length=255, blank=True)
    view = models.CharField(_("view"), max_length=255, blank=True, editable=False)
    reason = models.CharField(_("reason"), max_length=32)
    #: A digest of the network that it came from: no network may fill more than its share.
    sender = models.CharField(_("sender"), max_length=16, blank=True, editable=False)
    received_at = models.DateTimeField(_("received at"), default=timezone.now)
    content_type = models.CharField(_("content type"), max_length=255, blank=True)
    body = models.BinaryField(_("body"))
    signed_headers = models.JSONField(_("signed headers"), default=dict, editable=False)

    class Meta:
        verbose_name = _("quarantined delivery")
        verbose_name_plural = _("quarantined deliveries")
        permissions = [
            ("reverify_quarantineddelivery", "Can have a quarantined delivery verified again"),
        ]
        indexes = [
            models.Index(fields=["provider", "reason", "id"], name="webhook_quarantine_reason"),
            models.Index(fields=["provider", "reason", "sender"], name="webhook_quarantine_sender"),
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
        indexes = [
            models.Index(fields=["provider", "last_used_at"], name="webhook_secret_use_last")
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.fingerprint}"


class ExpectedSource(models.Model):
    """A provider that should be heard of every so often, and the silence that was told of last."""

    provider = models.CharField(_("provider"), max_length=64, unique=True)
    #: When the app first looked for it: one that never delivered is silent since then.
    expected_since = models.DateTimeField(_("expected since"), default=timezone.now)
    #: The beginning of the silence that the signal was last sent for.
    told_of = models.DateTimeField(_("told of silence since"), null=True, blank=True)

    class Meta:
        verbose_name = _("expected source")
        verbose_name_plural = _("expected sources")

    def __str__(self) -> str:
        return self.provider
