"""The sequence of the events of one object."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .events import WebhookEvent


class OrderingKey(models.Model):
    """One object whose events a handler takes one at a time, and the newest version applied.

    `key` is the digest of the handler's name and its ordering key.
    """

    key = models.CharField(_("key"), max_length=64, unique=True, editable=False)
    provider = models.CharField(_("provider"), max_length=64)
    #: The event that runs, if its lease is alive.
    holder = models.BigIntegerField(_("holder"), null=True, blank=True)
    #: JSON of the newest version that was applied.
    version = models.CharField(_("version"), max_length=255, blank=True)
    updated_at = models.DateTimeField(_("updated at"), default=timezone.now)

    class Meta:
        verbose_name = _("ordering key")
        verbose_name_plural = _("ordering keys")
        indexes = [
            models.Index(fields=["provider", "updated_at"], name="webhook_ordering_age"),
        ]

    def __str__(self) -> str:
        return self.key


class HandlerTurn(models.Model):
    """An unfinished event's place in the sequence of an ordering key; gone when it is its past."""

    event = models.ForeignKey(
        WebhookEvent, verbose_name=_("event"), on_delete=models.CASCADE, related_name="turns"
    )
    key = models.CharField(_("key"), max_length=64, editable=False)
    #: Whether the handler was held back when the event ran, and has not been called since.
    waiting = models.BooleanField(_("waiting"), default=False)
    #: Until when those handlers of the event rest that have failed, should the turn come before.
    others_at = models.DateTimeField(_("others rest until"), null=True, blank=True)

    class Meta:
        verbose_name = _("handler turn")
        verbose_name_plural = _("handler turns")
        constraints = [
            models.UniqueConstraint(fields=["key", "event"], name="webhook_turn_once"),
        ]

    def __str__(self) -> str:
        return f"{self.key} {self.event_id}"
