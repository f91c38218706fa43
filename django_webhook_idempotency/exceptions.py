"""One exception for each way an event can leave the normal path."""

from __future__ import annotations

from datetime import timedelta

from django.core.exceptions import ImproperlyConfigured, SuspiciousOperation

LONGEST_RETRY = timedelta(days=366)


class WebhookError(Exception):
    """Base of what this package raises."""


class MalformedWebhook(WebhookError, SuspiciousOperation):
    """The delivery cannot be understood: no usable id, unreadable body or header (400)."""


class BodyTooLarge(WebhookError):
    """The body exceeds the provider's limit (413)."""


class BodyAlreadyRead(WebhookError, ImproperlyConfigured):
    """Somebody consumed the request body before its signature could be verified."""


class InsideTransaction(WebhookError, ImproperlyConfigured):
    """A wrapper opened a transaction around the receiver, which needs to commit on its own."""


class UnknownScope(WebhookError):
    """The scope in the URL belongs to nobody (404)."""


class HandlerMissing(WebhookError, ImproperlyConfigured):
    """No handler wants a stored event any more: this process may run older code, or newer."""


class MissingExtra(WebhookError, ImproperlyConfigured):
    """An optional dependency is needed and not installed.

    The message names the extra to install.
    """

    def __init__(self, extra: str, need: str) -> None:
        super().__init__(
            f"{need} needs an optional dependency. "
            f"Install it with: pip install 'django-webhook-idempotency[{extra}]'."
        )


class StoreUnavailable(WebhookError):
    """The lease store or the database cannot be reached; nothing was written (503)."""


class LeaseLost(WebhookError):
    """The lease ran out and somebody else took the event over; this finish does not count."""


class HandlerSignal(WebhookError):
    """Base of what a handler raises to say how its event should go on."""


class Reject(HandlerSignal):
    """Raised by a handler: this event can never be processed, stop sending it.

    `status` overrides the provider's own stop-retry answer. Some providers act hard on some
    statuses: 410 makes a Standard Webhooks sender disable the endpoint.
    """

    def __init__(self, reason: str = "", *, status: int | None = None) -> None:
        super().__init__(reason)
        if status is not None and not 200 <= status <= 599:
            raise ValueError(f"Reject(status={status!r}): not an HTTP status from 200 to 599.")
        self.status = status


class Retry(HandlerSignal):
    """Raised by a handler: try this event again, not before `after` (seconds or a timedelta)."""

    def __init__(self, reason: str = "", *, after: float | timedelta = 0) -> None:
        super().__init__(reason)
        self.after = after if isinstance(after, timedelta) else timedelta(seconds=after)
        if not timedelta(0) <= self.after <= LONGEST_RETRY:
            raise ValueError(f"Retry(after={after!r}): the wait has to be from 0 to 366 days.")


class Ignore(HandlerSignal):
    """Raised by a handler: this event is not for us; what the handler wrote is rolled back."""


class Superseded(Ignore):
    """The event is older than what was applied to its object already; raised for a handler.

    By the package where the handler has a `version`, or by the handler itself.
    """


class OrderingError(WebhookError):
    """The ordering key or the version of an event cannot be read, or has no order."""
