"""A version and the time signed with the body, the time in a header of its own.

Slack: https://docs.slack.dev/authentication/verifying-requests-from-slack
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .headers import HeaderError, read_candidate, read_header, read_timestamp
from .matching import encode, find_secret, judge, mac, matches_any
from .message import Message, Verdict
from .secrets import Secret


@dataclass(frozen=True, slots=True)
class VersionedHmac:
    """`<version>=<hex>`: HMAC-SHA256 over `<version>:<Unix seconds>:<body>`.

    The defaults are Slack's.
    """

    header: str = "X-Slack-Signature"
    timestamp_header: str = "X-Slack-Request-Timestamp"
    version: str = "v0"

    @property
    def signed_headers(self) -> frozenset[str]:
        """The headers that `verify` reads, in lower case; they hold signatures and no secret."""
        return frozenset({self.header.lower(), self.timestamp_header.lower()})

    def sign(
        self, body: bytes, secret: Secret, *, timestamp: int, message_id: str = ""
    ) -> dict[str, str]:
        """Return the two headers for `body` at `timestamp`; a message id is not signed."""
        signature = self._signature(secret, str(timestamp), body).decode()
        return {
            self.timestamp_header: str(timestamp),
            self.header: f"{self.version}={signature}",
        }

    def verify(
        self,
        message: Message,
        secrets: Sequence[Secret],
        *,
        now: float,
        tolerance: float | None,
    ) -> Verdict:
        """Check the signature against every secret, then the time.

        A right signature outside the tolerance, on either side, is STALE; a wrong one is MISMATCH
        whatever its time.
        """
        try:
            candidate = read_candidate(
                read_header(message.headers, self.header), f"{self.version}="
            )
            stamp = read_header(message.headers, self.timestamp_header)
            timestamp = read_timestamp(stamp)
        except HeaderError as error:
            return Verdict(error.reason)
        secret = find_secret(
            secrets,
            lambda secret: matches_any(self._signature(secret, stamp, message.body), [candidate]),
        )
        return judge(secret, timestamp, now=now, tolerance=tolerance)

    def check_secret(self, secret: Secret) -> str | None:
        """Say what is wrong with `secret`, without showing it; None if nothing is."""
        return secret.paste_error()

    def _signature(self, secret: Secret, stamp: str, body: bytes) -> bytes:
        return encode(mac(secret.value, [f"{self.version}:{stamp}:".encode(), body]), "hex")
