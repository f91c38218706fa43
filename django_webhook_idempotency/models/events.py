"""One row an event: what decides."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from ..enums import FINISHED, EventStatus
from ..exceptions import InsideTransaction
from ..querysets import WebhookEventQuerySet
from .texts import digest_of


class WebhookEvent(models.Model):
    """What happened at a provider; unique by (provider, scope, event id)."""

    provider = models.CharField(_("provider"), max_length=64)
    scope = models.CharField(_("scope"), max_length=255, blank=True)
    event_id = models.CharField(_("event id"), max_length=255)
    dedupe_key = models.CharField(_("dedupe key"), max_length=64, editable=False)
    # Null and not empty in both: a unique key and an index pass over what has none.
    secondary_key = models.CharField(  # noqa: DJ001
        _("secondary key"), max_length=64, null=True, blank=True, editable=False
    )
    content_key = models.CharField(  # noqa: DJ001
        _("content key"), max_length=64, null=True, blank=True, editable=False
    )
    event_type = models.CharField(_("event type"), max_length=255, blank=True)
    status = models.CharField(_("status"), max_length=16, choices=EventStatus.choices)
    body = models.BinaryField(_("body"), null=True, blank=True)
    body_digest = models.CharField(_("body digest"), max_length=64, blank=True)
    content_type = models.CharField(_("content type"), max_length=255, blank=True)
    received_at = models.DateTimeField(_("received at"), default=timezone.now)
    processed_at = models.DateTimeField(_("processed at"), null=True, blank=True)
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    #: Those before the last redelivery of a failed or dead event: they no longer count against it.
    forgiven = models.PositiveIntegerField(_("forgiven attempts"), default=0, editable=False)
    #: When a worker may run it: while somebody holds a lease, the end of that lease.
    next_attempt_at = models.DateTimeField(_("next attempt at"), null=True, blank=True)
    #: The provider again, but only while a worker may run the event one day; the index over it
    #: finds what is due without passing over what is finished.
    lane = models.CharField(  # noqa: DJ001
        _("lane"), max_length=64, null=True, blank=True, editable=False
    )
    #: When a queue was last told of it.
    enqueued_at = models.DateTimeField(_("enqueued at"), null=True, blank=True)
    #: The view class whose `handle` a worker calls; empty for registered handlers.
    view = models.CharField(_("view"), max_length=255, blank=True, editable=False)
    lease_token = models.CharField(
        _("lease token"), max_length=32, blank=True, default="", editable=False
    )
    lease_expires_at = models.DateTimeField(_("lease expires at"), null=True, blank=True)
    last_error = models.TextField(_("last error"), blank=True)
    #: The handler of an event that it processed alone at the first try: that run has no
    #: `HandlerRun` row, since the event's own row says all of it.
    handled_by = models.CharField(_("handled by"), max_length=255, blank=True)
    response_status = models.PositiveSmallIntegerField(_("answered"), null=True, blank=True)
    response_content_type = models.CharField(_("answered content type"), max_length=255, blank=True)
    response_body = models.BinaryField(_("answered body"), null=True, blank=True)

    objects = WebhookEventQuerySet.as_manager()

    class Meta:
        verbose_name = _("webhook event")
        verbose_name_plural = _("webhook events")
        permissions = [("replay_webhookevent", "Can replay webhook event")]
        constraints = [
            models.UniqueConstraint(fields=["dedupe_key"], name="webhook_event_dedupe_key"),
            models.UniqueConstraint(fields=["secondary_key"], name="webhook_event_secondary_key"),
        ]
        indexes = [
            models.Index(fields=["content_key"], name="webhook_event_content"),
            models.Index(fields=["event_id"], name="webhook_event_event_id"),
            models.Index(fields=["status", "id"], name="webhook_event_status"),
            models.Index(fields=["provider", "id"], name="webhook_event_provider"),
            models.Index(fields=["received_at"], name="webhook_event_received"),
            models.Index(fields=["lane", "scope", "next_attempt_at"], name="webhook_event_lane"),
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.event_id}"

    @property
    def counted_attempts(self) -> int:
        """The attempts that count towards giving it up."""
        return self.attempts - self.forgiven

    @property
    def is_finished(self) -> bool:
        """Whether a copy of this event is a duplicate."""
        return self.status in FINISHED

    @property
    def lease_has_expired(self) -> bool:
        """Whether nobody holds a live lease on this event."""
        return self.lease_expires_at is None or self.lease_expires_at <= timezone.now()

    @property
    def type(self) -> str:
        """The event type, as handlers are registered for."""
        return self.event_type

    @property
    def data(self) -> Any:
        """The payload, parsed once for each handler; the bytes stay in `body`."""
        if not hasattr(self, "_data"):
            loader: Callable[[], Any] = getattr(self, "_loader", self._parse_body)
            self._data = loader()
        return self._data

    def read_data_with(self, loader: Callable[[], Any]) -> None:
        """Let the provider say how `data` is read from the body."""
        self._loader = loader

    def forget_data(self) -> None:
        """Let `data` be read anew: whoever had it may have changed what is in it."""
        self.__dict__.pop("_data", None)

    def _parse_body(self) -> Any:
        return json.loads(bytes(self.body or b""))

    def idempotency_key(self, name: str = "") -> str:
        """A key that is the same in every run of this event, to pass on to another API.

        `name` tells several calls of one handler apart.
        """
        return digest_of("idempotency", self.dedupe_key, name)

    #: How the handler that runs now does its steps; None unless it runs under a lease.
    _steps: Any = None

    def step(self, name: str, function: Callable[[], Any]) -> Any:
        """Do a step of an `atomic=False` handler once; a retry gets its result and goes on.

        `function` takes no arguments. Its result is kept as JSON, and given back as JSON reads it.
        """
        return self._running().run(name, function)

    async def astep(self, name: str, function: Callable[[], Awaitable[Any]]) -> Any:
        """As `step`, of a coroutine function in an asynchronous handler."""
        return await self._running().arun(name, function)

    def _running(self) -> Any:
        if self._steps is None:
            raise InsideTransaction(
                "Only a handler with atomic=False has steps, while it runs. In a transaction, what "
                "was done would be forgotten if that is undone."
            )
        return self._steps
