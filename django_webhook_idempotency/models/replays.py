"""Who had an event run again, and why."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .events import WebhookEvent


class Replay(models.Model):
    """One time that somebody let an event run again.

    What the handlers did before no longer counts: their runs up to the number `after`. If it is for
    one handler, the others keep what they have come to.
    """

    event = models.ForeignKey(
        WebhookEvent, verbose_name=_("event"), on_delete=models.CASCADE, related_name="replays"
    )
    #: Empty for all handlers of the event.
    handler = models.CharField(_("handler"), max_length=255, blank=True)
    after = models.PositiveIntegerField(_("after run"), default=0)
    requested_by = models.CharField(_("requested by"), max_length=150)
    reason = models.CharField(_("why"), max_length=255)
    requested_at = models.DateTimeField(_("requested at"), default=timezone.now)
    #: Where the event stood before.
    status_before = models.CharField(_("status before"), max_length=16)
    #: Of a replay for one handler: when the others were due, and how many attempts were forgiven
    #: them before.
    others_at = models.DateTimeField(_("others due at"), null=True, blank=True, editable=False)
    others_forgiven = models.PositiveIntegerField(
        _("forgiven the others"), default=0, editable=False
    )

    class Meta:
        verbose_name = _("replay")
        verbose_name_plural = _("replays")

    def __str__(self) -> str:
        return f"{self.event_id} {self.requested_by}"
