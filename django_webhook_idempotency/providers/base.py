"""What every provider declares, and what it may do in its own way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from ..conf import SETTING
from ..enums import Outcome
from ..exceptions import MalformedWebhook, Reject, Retry, UnknownScope
from ..signatures import Message, Scheme, Secret, Verdict
from . import options
from .identity import Answer, Identity, Redelivery
from .incoming import Incoming
from .secrets import Entry, configured_secrets, secret_entries

SERVICE_UNAVAILABLE = 503


class Provider:
    """One source of webhooks: facts as class attributes, a few seams as methods.

    Every attribute named in `options` can be set in `WEBHOOK_IDEMPOTENCY` under its upper-case
    name, for one provider or for all, and on a view in lower case. Durations are timedeltas;
    waits and tolerances are seconds.
    """

    slug: ClassVar[str] = ""
    name: ClassVar[str] = ""
    #: What the provider's own scope is, for a person who has to name it; empty if it has none.
    scoped_by: ClassVar[str] = ""
    #: The vendor's pages that these facts were read from.
    docs: ClassVar[tuple[str, ...]] = ()
    scheme: Scheme | None = None

    #: Whether deliveries carry a signature at all; if not, the view must know whom it lets in.
    is_signed: ClassVar[bool] = True
    #: Whether the signature covers the event id. If it does not, a captured body can be sent
    #: again under a new id, so bodies are compared too.
    id_is_signed: ClassVar[bool] = True
    #: How long the provider retries by itself; zero if it never does.
    retry_window: timedelta = timedelta(0)
    #: How long a person can make the provider send an event again.
    resend_window: timedelta = timedelta(0)
    #: How long the vendor says to keep ids, where that is longer than the window.
    retention_floor: ClassVar[timedelta] = timedelta(0)
    #: Methods and media types that are let in.
    methods: ClassVar[frozenset[str]] = frozenset({"POST"})
    content_types: ClassVar[frozenset[str]] = frozenset({"application/json"})
    #: Headers worth keeping on the delivery row; nothing that authenticates belongs here.
    kept_headers: ClassVar[frozenset[str]] = frozenset()
    #: Headers, besides those of the signature, that tell which event a delivery carries. What is
    #: kept in the quarantine has no others.
    identifying_headers: ClassVar[frozenset[str]] = frozenset()
    #: Fields at the top of the payload that authenticate somebody, and are never shown.
    hidden_fields: ClassVar[frozenset[str]] = frozenset()
    #: Headers sent with the answer to an event that a handler rejected for good.
    stop_retry_headers: ClassVar[Mapping[str, str]] = {}

    secrets: Any = None
    #: Scopes that the URL may name; None for any. One that no secret of its own stands behind
    #: only names a copy of the same endpoint.
    scopes: frozenset[str] | None = None
    tolerance: float | None = 300
    deadline: float | None = None
    max_body: int = 5 * 1024 * 1024
    #: Where handlers run: "inline" in the request, "queued" in a worker after the answer.
    processing: str = "inline"
    success_status: int = 200
    accepted_status: int = 202
    rejected_status: int = 401
    failed_status: int = 500
    in_progress_status: int = 503
    stop_retry_status: int = 200
    wait: float = 2.0
    retry_after: int = 5
    lease: timedelta = timedelta(seconds=60)
    max_attempts: int = 20
    #: The longest wait before the second attempt; it doubles with each, up to `backoff_max`, and
    #: the wait itself is random up to that.
    backoff: timedelta = timedelta(seconds=5)
    backoff_max: timedelta = timedelta(hours=1)
    #: How many unfinished events may be stored; None for no limit.
    max_pending: int | None = None
    retention: timedelta = timedelta(days=90)
    body_retention: timedelta = timedelta(days=30)
    delivery_retention: timedelta = timedelta(days=30)
    store_body: bool | str = True
    store_deliveries: bool = True
    rejected_limit: int = 1000
    #: How many deliveries that failed verification are kept of each reason, of which size, and
    #: for how long.
    quarantine_limit: int = 1000
    quarantine_max_body: int = 256 * 1024
    quarantine_retention: timedelta = timedelta(days=7)
    #: How often it should be heard of at least; None if it may be silent.
    expect_every: timedelta | None = None
    id_from_body: bool = False
    secondary_key: Callable[[Incoming], str | None] | None = None
    #: What the sources of recovery need, tokens among it; None where nothing is recovered.
    recovery: Mapping[str, Any] | None = None
    #: What becomes of a body that is known already under another id: "allow", "flag" or "refuse".
    #: An option only where the id is not signed.
    same_body: str = "allow"

    #: Option name (lower case) to what checks its value; a provider adds its own.
    options: ClassVar[Mapping[str, options.Validator]] = options.COMMON

    def __init__(self, slug: str = "", values: Mapping[str, Any] | None = None) -> None:
        """Take option values under their upper-case names. Raises ImproperlyConfigured."""
        self.key = slug or self.slug
        for name, value in (values or {}).items():
            options.assign(self, name, value)

    @property
    def window(self) -> timedelta:
        """How long the same event can still arrive."""
        return max(self.retry_window, self.resend_window)

    @property
    def minimum_retention(self) -> timedelta:
        """How long a key has to be kept at least."""
        return max(self.window, self.retention_floor)

    @property
    def quarantine_time(self) -> timedelta:
        """How long a delivery that failed verification may still be verified.

        Never so long that another delivery of its event was taken and its key is gone by then.
        """
        return max(min(self.quarantine_retention, self.retention - self.window), timedelta(0))

    @property
    def signed_headers(self) -> frozenset[str]:
        """The headers, in lower case, that a kept delivery is verified and identified by.

        Empty unless the scheme says that its headers are signatures: a header that is the secret
        itself is never kept, and neither is its delivery.
        """
        own: Iterable[str] = getattr(self.scheme, "signed_headers", ()) if self.is_signed else ()
        names = frozenset(name.lower() for name in own)
        return names and names | {name.lower() for name in self.identifying_headers}

    @property
    def retries(self) -> bool:
        """Whether the provider sends again by itself what was not acknowledged."""
        return self.retry_window > timedelta(0)

    def accepts(self, content_type: str) -> bool:
        """Whether the provider sends bodies of a media type, given in lower case and bare."""
        return content_type in self.content_types or (
            content_type.endswith("+json") and "application/json" in self.content_types
        )

    def live_secrets(self, scope: str = "") -> list[Secret]:
        """The secrets that may verify a delivery now.

        `scope` is the one in the URL. Raises ImproperlyConfigured if there is none: an absent
        secret must never mean that everybody is let in. Raises UnknownScope for a scope that
        isn't among `scopes`, or that a SECRETS function knows no secret for.
        """
        if scope and self.scopes is not None and scope not in self.scopes:
            raise UnknownScope(f"The scope {scope!r} is not among SCOPES.")
        return configured_secrets(self.secrets, scope, self._where_secrets)

    def secret_entries(self) -> list[Entry]:
        """Every secret of no scope, those that have ended too. Raises ImproperlyConfigured."""
        return secret_entries(self.secrets, "", self._where_secrets)

    @property
    def _where_secrets(self) -> str:
        return f"{SETTING}['PROVIDERS'][{self.key!r}]['SECRETS']"

    def verify(self, message: Message, secrets: Sequence[Secret], now: float) -> Verdict:
        """Judge the signature; `now` is Unix time in seconds."""
        if self.scheme is None:
            raise TypeError(f"Provider {self.key!r} has no signature scheme.")
        return self.scheme.verify(message, secrets, now=now, tolerance=self.tolerance)

    def unsigned_handshake(self, incoming: Incoming) -> Answer | None:
        """Answer a handshake that the provider sends without a signature. Must be harmless."""
        return None

    def handshake(self, incoming: Incoming) -> Answer | None:
        """Answer a verified handshake, or None if the delivery carries an event."""
        return None

    def identify(self, incoming: Incoming) -> Identity:
        """Say which event this is. Raises MalformedWebhook if it carries no usable id."""
        raise TypeError(f"{type(self).__name__} must say how to identify an event.")

    def may_scope(self, scope: str) -> bool:
        """Whether a delivery may have that scope of the provider's own."""
        return True

    def describe(self, incoming: Incoming) -> Identity:
        """As `identify`, for a delivery whose id is found elsewhere: a missing one is no fault."""
        try:
            return self.identify(incoming)
        except MalformedWebhook:
            return Identity("")

    def usable_id(self, event_id: str, incoming: Incoming) -> str:
        """Return `event_id`, or a digest of the body where ID_FROM_BODY allows it.

        Raises MalformedWebhook if there is neither: a shared blank id would swallow every other
        event that lacks one.
        """
        if event_id.strip():
            return event_id
        if self.id_from_body:
            return "sha256:" + hashlib.sha256(incoming.body).hexdigest()
        raise MalformedWebhook("The delivery carries no event id.")

    def redelivery(self, incoming: Incoming) -> Redelivery:
        """What the provider's retry headers say; only recorded, never used to decide."""
        return Redelivery()

    def payload(self, incoming: Incoming) -> Any:
        """The document that handlers see as `event.data`. Raises MalformedWebhook."""
        return incoming.json

    def body_digest(self, body: bytes) -> str:
        """SHA-256 hex of what must stay equal when the same event is sent again."""
        return hashlib.sha256(body).hexdigest()

    def answer_status(self, outcome: Outcome, error: BaseException | None = None) -> int:
        """The HTTP status that tells this provider what became of a delivery."""
        if outcome == Outcome.FAILED:
            if isinstance(error, Reject):
                return error.status or self.stop_retry_status
            return SERVICE_UNAVAILABLE if isinstance(error, Retry) else self.failed_status
        return {
            Outcome.REJECTED: self.rejected_status,
            Outcome.IN_PROGRESS: self.in_progress_status,
            Outcome.ACCEPTED: self.accepted_status,
            Outcome.MALFORMED: 400,
            Outcome.TOO_LARGE: 413,
        }.get(outcome, self.success_status)

    def problems(self) -> Iterable[str]:
        """What is wrong with this provider's settings beyond single values; for the checks."""
        return ()
