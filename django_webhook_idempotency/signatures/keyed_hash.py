"""HMAC in every layout that vendors use.

GitHub: https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
Stripe: https://docs.stripe.com/webhooks#verify-manually
Slack: https://docs.slack.dev/authentication/verifying-requests-from-slack
Sangho: PyPI sangho 0.2.0, `Sangho.construct_event`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from .layouts import Layout
from .matching import Digest, Encoding, decode_base64, encode, mac, matches_any
from .secrets import Secret

#: How the secret becomes the key: as it stands, or decoded.
KeyEncoding = Literal["text", "hex", "base64"]


@dataclass(frozen=True, slots=True)
class Hmac(Layout):
    """An HMAC signature in a header; what of the request it covers is said by `content`.

    `Hmac("X-Acme-Signature")` is hexadecimal HMAC-SHA256 over the body. `digest`, `encoding` and
    `key` say otherwise; `key` is how the secret's text becomes the key. A provider whose secrets
    all begin alike says so in `key_prefix`: it serves `check_secret`, and stays in the key
    unless that is decoded.
    """

    _: KW_ONLY
    digest: Digest = "sha256"
    encoding: Encoding = "hex"
    key: KeyEncoding = "text"
    key_prefix: str = ""

    def check_secret(self, secret: Secret) -> str | None:
        """Say what is wrong with `secret`, without showing it; None if nothing is."""
        if error := secret.paste_error():
            return error
        if not secret.text.startswith(self.key_prefix):
            return f"The secret does not start with '{self.key_prefix}'."
        try:
            self._key(secret)
        except ValueError as error:
            return str(error)
        return None

    def signature(self, secret: Secret, content: Sequence[bytes]) -> bytes:
        """The signature over the parts of `content`. Raises ValueError for an unreadable key."""
        return encode(mac(self._key(secret), content, self.digest), self.encoding)

    def matches(
        self, secret: Secret, content: Sequence[bytes], candidates: Sequence[bytes]
    ) -> bool:
        """Whether any candidate is right; a secret that cannot be decoded matches nothing."""
        try:
            expected = self.signature(secret, content)
        except ValueError:
            return False
        return matches_any(expected, candidates)

    def _key(self, secret: Secret) -> bytes:
        if self.key == "text":
            return secret.value
        text = secret.text.removeprefix(self.key_prefix)
        try:
            raw = bytes.fromhex(text) if self.key == "hex" else decode_base64(text)
        except ValueError:
            raise ValueError(f"The secret is not {self.key}.") from None
        if not raw.strip(b"\0"):
            raise ValueError("The secret decodes to an empty key.")
        return raw
