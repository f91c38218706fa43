"""One header that carries the time and its signatures.

Stripe: https://docs.stripe.com/webhooks#verify-manually
Sangho: PyPI sangho 0.2.0, `Sangho.construct_event`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..enums import RejectReason
from .headers import HeaderError, read_candidates, read_header, read_timestamp
from .matching import encode, find_secret, judge, mac, matches_any
from .message import Message, Verdict
from .secrets import Secret


@dataclass(frozen=True, slots=True)
class TimestampedHmac:
    """`t=<Unix seconds>,v1=<hex>[,v1=<hex>...]`: HMAC-SHA256 over `<t>.<body>`.

    The key is the secret as it stands, `whsec_` included. Other versions and unknown fields are
    skipped: Stripe sends a fake `v0` with test events. A provider whose secrets all begin alike
    says so in `secret_prefix`; it serves `check_secret` only.
    """

    header: str = "Stripe-Signature"
    version: str = "v1"
    secret_prefix: str = ""

    @property
    def signed_headers(self) -> frozenset[str]:
        """The headers that `verify` reads, in lower case; they hold signatures and no secret."""
        return frozenset({self.header.lower()})

    def sign(
        self, body: bytes, secret: Secret, *, timestamp: int, message_id: str = ""
    ) -> dict[str, str]:
        """Return the header for `body` at `timestamp`; a message id is not signed."""
        signature = self._signature(secret, str(timestamp), body).decode()
        return {self.header: f"t={timestamp},{self.version}={signature}"}

    def verify(
        self,
        message: Message,
        secrets: Sequence[Secret],
        *,
        now: float,
        tolerance: float | None,
    ) -> Verdict:
        """Check every signature of our version against every secret, then the time.

        A right signature outside the tolerance, on either side, is STALE; a wrong one is MISMATCH
        whatever its time.
        """
        try:
            stamp, candidates = self._read(message.headers)
            timestamp = read_timestamp(stamp)
        except HeaderError as error:
            return Verdict(error.reason)
        secret = find_secret(
            secrets,
            lambda secret: matches_any(self._signature(secret, stamp, message.body), candidates),
        )
        return judge(secret, timestamp, now=now, tolerance=tolerance)

    def check_secret(self, secret: Secret) -> str | None:
        """Say what is wrong with `secret`, without showing it; None if nothing is."""
        if error := secret.paste_error():
            return error
        if not secret.text.startswith(self.secret_prefix):
            return f"The secret does not start with '{self.secret_prefix}'."
        return None

    def _read(self, headers: Mapping[str, str]) -> tuple[str, list[bytes]]:
        items = read_header(headers, self.header).split(",")
        fields = [item.strip(" ").partition("=") for item in items]
        stamps = {value for name, _, value in fields if name == "t"}
        if len(stamps) != 1:
            raise HeaderError(RejectReason.MALFORMED)
        candidates = read_candidates(value for name, _, value in fields if name == self.version)
        return stamps.pop(), candidates

    def _signature(self, secret: Secret, stamp: str, body: bytes) -> bytes:
        return encode(mac(secret.value, [f"{stamp}.".encode(), body]), "hex")
