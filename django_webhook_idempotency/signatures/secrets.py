"""Shared secrets and public keys, kept out of every `repr`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Secret:
    """One secret as configured; equal secrets have equal fingerprints.

    Raises ValueError for an empty or blank value: an empty key verifies anybody's signature.
    """

    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not self.value.strip():
            raise ValueError("A webhook secret is empty.")

    @classmethod
    def parse(cls, text: str | bytes) -> Secret:
        """Take a secret as pasted: surrounding white space is dropped."""
        return cls((text.encode() if isinstance(text, str) else text).strip())

    @property
    def text(self) -> str:
        """The secret as text, for schemes whose secrets have a textual form."""
        return self.value.decode("utf-8", "replace")

    @property
    def fingerprint(self) -> str:
        """Eight hex digits that tell secrets apart without giving them away."""
        return hashlib.sha256(b"webhook-secret:" + self.value).hexdigest()[:8]
