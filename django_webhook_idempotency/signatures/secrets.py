"""Shared secrets and public keys, kept out of every `repr`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

# What is left of `"whsec_" + os.environ.get(...)` when the variable is unset.
_BARE_PREFIXES = frozenset({b"", b"whsec_", b"v1,whsec_", b"whpk_", b"whsk_"})


@dataclass(frozen=True, slots=True)
class Secret:
    """One secret as configured; equal secrets have equal fingerprints.

    Raises ValueError for an empty value: an empty key verifies anybody's signature. Blanks, a
    prefix with nothing after it, and zero bytes (HMAC pads every key with them) are empty too.
    """

    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if self.value.strip().strip(b"\0") in _BARE_PREFIXES:
            raise ValueError("A webhook secret is empty.")

    @classmethod
    def parse(cls, text: str | bytes) -> Secret:
        """Take a secret as pasted: surrounding white space is dropped.

        Raises ValueError if it is empty or not text. Bytes of the environment that are not UTF-8
        reach us as lone surrogates and become those bytes again.
        """
        if isinstance(text, bytes):
            return cls(text.strip())
        try:
            return cls(text.strip().encode(errors="surrogateescape"))
        except UnicodeEncodeError:
            # Its own message would carry the secret along.
            raise ValueError("A webhook secret is not text.") from None

    @property
    def text(self) -> str:
        """The secret as text, for schemes whose secrets have a textual form."""
        return self.value.decode("utf-8", "replace")

    @property
    def fingerprint(self) -> str:
        """Eight hex digits that tell secrets apart without giving them away."""
        return hashlib.sha256(b"webhook-secret:" + self.value).hexdigest()[:8]

    def paste_error(self) -> str | None:
        """Say what a careless paste left in the secret, without showing it; None if nothing."""
        text = self.text
        if text != text.strip():
            return "The secret has white space around it."
        if not text.isprintable():
            return "The secret contains a line break or another invisible character."
        if text[0] == text[-1] and text[0] in "\"'":
            return "The secret is still in quotation marks."
        if text.startswith("v1,whsec_"):
            return "The secret starts with 'v1,whsec_': leave out 'v1,'."
        return None
