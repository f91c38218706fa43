"""HMAC over the raw body and nothing else.

GitHub: https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..enums import RejectReason
from .headers import HeaderError, read_candidate, read_header
from .matching import Digest, Encoding, encode, find_secret, mac, matches_any
from .message import Message, Verdict
from .secrets import Secret


@dataclass(frozen=True, slots=True)
class HmacBody:
    """`<prefix><signature>` in one header, keyed with the secret's bytes.

    The defaults are GitHub's. Its SHA-1 twin is accepted only by a scheme made for it:
    `HmacBody("X-Hub-Signature", prefix="sha1=", digest="sha1")`. No time is signed, so a captured
    delivery verifies for ever: the event id is the only guard against replays.
    """

    header: str = "X-Hub-Signature-256"
    prefix: str = "sha256="
    digest: Digest = "sha256"
    encoding: Encoding = "hex"

    @property
    def signed_headers(self) -> frozenset[str]:
        """The headers that `verify` reads, in lower case; they hold signatures and no secret."""
        return frozenset({self.header.lower()})

    def sign(
        self, body: bytes, secret: Secret, *, timestamp: int = 0, message_id: str = ""
    ) -> dict[str, str]:
        """Return the header for `body`; the time and the message id are not signed."""
        return {self.header: self.prefix + self._signature(secret, body).decode()}

    def verify(
        self,
        message: Message,
        secrets: Sequence[Secret],
        *,
        now: float,
        tolerance: float | None,
    ) -> Verdict:
        """Check the signature against every secret; `now` and `tolerance` have no part in it."""
        try:
            candidate = read_candidate(read_header(message.headers, self.header), self.prefix)
        except HeaderError as error:
            return Verdict(error.reason)
        secret = find_secret(
            secrets,
            lambda secret: matches_any(self._signature(secret, message.body), [candidate]),
        )
        return Verdict(None if secret else RejectReason.MISMATCH, secret)

    def check_secret(self, secret: Secret) -> str | None:
        """Say what is wrong with `secret`, without showing it; None if nothing is."""
        return secret.paste_error()

    def _signature(self, secret: Secret, body: bytes) -> bytes:
        return encode(mac(secret.value, [body], self.digest), self.encoding)
