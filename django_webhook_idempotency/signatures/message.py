"""What a scheme reads and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..enums import RejectReason
from .secrets import Secret


@dataclass(frozen=True, slots=True)
class Message:
    """The parts of an HTTP request that a signature can cover.

    `headers` has lower-case names and text values; a repeated field arrives joined with commas,
    as HTTP servers hand it over. `url` is absolute, as the provider called it.
    """

    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    method: str = "POST"
    url: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one verification.

    `secret` is the secret that matched, None unless the signature is accepted; `timestamp` the
    Unix time in seconds that the delivery claims, where the scheme has one and it could be read.
    It is signed if the verdict is valid or STALE, and anybody's word otherwise.
    """

    reason: RejectReason | None = None
    secret: Secret | None = None
    timestamp: int | None = None

    @property
    def valid(self) -> bool:
        """Whether the signature holds."""
        return self.reason is None and self.secret is not None


class Scheme(Protocol):
    """One way to sign a webhook.

    A scheme whose headers hold signatures, and nothing that lets its bearer in, may name them in
    `signed_headers`, in lower case: only such deliveries are kept in the quarantine.
    """

    def sign(
        self,
        body: bytes,
        secret: Secret,
        *,
        timestamp: int,
        message_id: str = "",
        request: Message | None = None,
    ) -> dict[str, str]:
        """Return the headers that a provider would send with `body`.

        `request` is the rest of the request, for those that sign its method, URL or headers.
        """
        ...

    def verify(
        self,
        message: Message,
        secrets: Sequence[Secret],
        *,
        now: float,
        tolerance: float | None,
    ) -> Verdict:
        """Check every signature against every secret, then the signed time.

        `now` is Unix time in seconds; `tolerance` the seconds that the signed time may lie on
        either side of it, None for no limit. No content of body or headers raises: a header that
        the signature needs is MISSING if absent and MALFORMED if it cannot be read, a right
        signature outside the tolerance is STALE, and everything else is a MISMATCH.
        """
        ...

    def check_secret(self, secret: Secret) -> str | None:
        """Say in one sentence what is wrong with `secret`, without showing it; None if nothing."""
        ...
