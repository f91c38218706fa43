"""What handlers did: their runs, and the steps that they have finished."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .events import WebhookEvent


class HandlerRun(models.Model):
    """One execution of one handler for one event."""

    event = models.ForeignKey(
        WebhookEvent, verbose_name=_("event"), on_delete=models.CASCADE, related_name="runs"
    )
    handler = models.CharField(_("handler"), max_length=255)
    number = models.PositiveIntegerField(_("number"))
    started_at = models.DateTimeField(_("started at"))
    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)
    error_class = models.CharField(_("error"), max_length=255, blank=True)
    error_message = models.TextField(_("error message"), blank=True)
    traceback = models.TextField(_("traceback"), blank=True)

    class Meta:
        verbose_name = _("handler run")
        verbose_name_plural = _("handler runs")

    def __str__(self) -> str:
        return f"{self.handler} #{self.number}"

    @property
    def succeeded(self) -> bool:
        """Whether the handler returned and what it wrote was committed."""
        return self.finished_at is not None and not self.error_class


class HandlerStep(models.Model):
    """A finished step of a handler: a retry goes on after it."""

    event = models.ForeignKey(
        WebhookEvent, verbose_name=_("event"), on_delete=models.CASCADE, related_name="steps"
    )
    handler = models.CharField(_("handler"), max_length=255)
    name = models.CharField(_("name"), max_length=255)
    #: SHA-256 of handler and name: unique whatever a database's collation makes of the texts.
    key = models.CharField(_("key"), max_length=64, editable=False)
    result = models.TextField(_("result"), blank=True)
    finished_at = models.DateTimeField(_("finished at"), default=timezone.now)

    class Meta:
        verbose_name = _("handler step")
        verbose_name_plural = _("handler steps")
        constraints = [
            models.UniqueConstraint(fields=["event", "key"], name="webhook_step_once"),
        ]

    def __str__(self) -> str:
        return f"{self.handler} {self.name}"
