"""A shared secret that is sent along with every delivery, instead of a signature.

It proves who sent the delivery and nothing about its content, so whoever reads one can write
others. Its header is the secret itself: no `signed_headers`, and nothing of it is ever kept.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from ..enums import RejectReason
from .headers import HeaderError, read_header
from .matching import find_secret
from .message import Message, Verdict
from .secrets import Secret


@dataclass(frozen=True, slots=True)
class Token:
    """`<prefix><secret>` in one header."""

    header: str
    prefix: str = ""

    def sign(
        self,
        body: bytes,
        secret: Secret,
        *,
        timestamp: int = 0,
        message_id: str = "",
        request: Message | None = None,
    ) -> dict[str, str]:
        """Return the header that holds the secret; nothing is signed."""
        return {self.header: self._expected(secret).decode()}

    def verify(
        self,
        message: Message,
        secrets: Sequence[Secret],
        *,
        now: float,
        tolerance: float | None,
    ) -> Verdict:
        """Compare the header with every secret, whether or not one has matched already."""
        try:
            sent = read_header(message.headers, self.header).encode()
        except HeaderError as error:
            return Verdict(error.reason)
        secret = find_secret(
            secrets, lambda secret: hmac.compare_digest(self._expected(secret), sent)
        )
        return Verdict(None if secret else RejectReason.MISMATCH, secret)

    def check_secret(self, secret: Secret) -> str | None:
        """Say what is wrong with `secret`, without showing it; None if nothing is."""
        if error := secret.paste_error():
            return error
        return None if secret.text.isascii() else "The secret has characters outside of ASCII."

    def _expected(self, secret: Secret) -> bytes:
        return self.prefix.encode() + secret.value


@dataclass(frozen=True, slots=True)
class BasicAuth(Token):
    """HTTP Basic authentication, RFC 7617; the secret is `user:password`."""

    header: str = "Authorization"
    prefix: str = "Basic "

    def check_secret(self, secret: Secret) -> str | None:
        """Say what is wrong with `secret`, without showing it; None if nothing is."""
        if error := secret.paste_error():
            return error
        user, colon, password = secret.text.partition(":")
        return None if user and colon and password else "The secret is not 'user:password'."

    def _expected(self, secret: Secret) -> bytes:
        return self.prefix.encode() + base64.b64encode(secret.value)
