"""What a delivery asks for, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpResponseBase
from django.utils import timezone

from .. import ledger
from ..enums import Origin, Outcome
from ..exceptions import Ignore, Superseded, WebhookError
from ..handlers import Handler
from ..models import WebhookDelivery, WebhookEvent
from ..providers import Provider, Redelivery
from ..providers.base import SERVICE_UNAVAILABLE

SERVER_ERROR = 500


class ViewFailed(WebhookError):
    """A decorated view answered with an error status; what it wrote is undone."""

    def __init__(self, response: HttpResponseBase) -> None:
        super().__init__(f"The view answered {response.status_code}.")
        self.response = response


@dataclass
class DeliveryReport:
    """One delivery while it is being handled; becomes its row at the end.

    `headers` are those worth keeping, already redacted.
    """

    provider: Provider
    origin: Origin = Origin.REQUEST
    headers: Mapping[str, str] = field(default_factory=dict)
    redelivery: Redelivery = field(default_factory=Redelivery)
    body_digest: str = ""
    secret_fingerprint: str = ""
    received_at: datetime = field(default_factory=timezone.now)
    started: float = field(default_factory=time.monotonic)
    outcome: Outcome = Outcome.REJECTED
    status: int = 0
    conflict: bool = False
    note: str = ""
    #: Whether a handler was called: then nothing may begin the delivery anew.
    ran: bool = False

    @property
    def duration(self) -> timedelta:
        """The time since the delivery arrived."""
        return timedelta(seconds=time.monotonic() - self.started)

    def save(self, event: WebhookEvent | None, using: str) -> None:
        """Write the row unless the provider's deliveries aren't kept."""
        if self.provider.store_deliveries:
            self.row(event).save(force_insert=True, using=using)

    def row(self, event: WebhookEvent | None) -> WebhookDelivery:
        """The delivery's row as things stand now."""
        return WebhookDelivery(
            event=event,
            provider=self.provider.key,
            received_at=self.received_at,
            origin=self.origin,
            outcome=self.outcome,
            status=self.status,
            duration=self.duration,
            retry_number=self.redelivery.number,
            retry_reason=self.redelivery.reason,
            headers=dict(self.headers),
            body_digest=self.body_digest,
            secret_fingerprint=self.secret_fingerprint,
            conflict=self.conflict,
            note=self.note[:255],
        )


@dataclass
class Work:
    """The handlers that an event needs and the terms they run on.

    `prepare` is told which event is about to run, for a view that reads the request itself.
    `view` is the path of the view class whose `handle` a worker may call, empty for registered
    handlers, and None where only a request can run the event. `acknowledged` says that the
    delivery was let in and answered before: nobody can turn it away any more.
    """

    provider: Provider
    handlers: list[Handler]
    report: DeliveryReport
    replay_response: bool = False
    prepare: Callable[[WebhookEvent], None] = lambda event: None
    view: str | None = None
    acknowledged: bool = False

    def settle(self, result: Result) -> None:
        """Set the report's outcome and the status that the delivery is answered with."""
        self.report.outcome = result.outcome
        if result.response is not None:
            self.report.status = result.response.status_code
        elif ledger.is_transient(result.error):
            self.report.status = SERVICE_UNAVAILABLE
        else:
            self.report.status = self.provider.answer_status(result.outcome, result.error)

    def record(self, result: Result, using: str) -> Result:
        """Write the delivery's row into the caller's transaction."""
        self.settle(result)
        self.report.save(result.event, using)
        result.recorded = True
        return result

    @property
    def lane(self) -> str | None:
        """The lane of the event while a worker may run it."""
        return None if self.view is None else self.provider.key

    @property
    def max_attempts(self) -> int:
        """The failed attempts after which the event is a dead letter."""
        own = [handler.max_attempts or self.provider.max_attempts for handler in self.handlers]
        return max(own, default=self.provider.max_attempts)

    @property
    def is_ordered(self) -> bool:
        """Whether any handler takes the events of an object one at a time."""
        return any(handler.ordering_key is not None for handler in self.handlers)

    @property
    def atomic(self) -> bool:
        """Whether every handler shares the event's transaction."""
        return all(handler.atomic for handler in self.handlers)


@dataclass
class Result:
    """What came of a delivery.

    `recorded` says that its row is written already; `unproven` that nothing vouches for the
    delivery, since no signature was asked for and the view itself refused it.
    """

    outcome: Outcome
    event: WebhookEvent | None = None
    error: BaseException | None = None
    value: Any = None
    recorded: bool = False
    unproven: bool = False

    @classmethod
    def of_failure(cls, event: WebhookEvent | None, error: BaseException) -> Result:
        """What a delivery whose handler raised `error` came to."""
        outcome = Outcome.IGNORED if isinstance(error, Ignore) else Outcome.FAILED
        if isinstance(error, Superseded):
            outcome = Outcome.SUPERSEDED
        return cls(outcome, event, error)

    @property
    def response(self) -> HttpResponseBase | None:
        """The answer that a decorated view made, if there is one."""
        if isinstance(self.error, ViewFailed):
            return self.error.response
        return self.value if isinstance(self.value, HttpResponseBase) else None
