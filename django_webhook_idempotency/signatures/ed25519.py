"""Ed25519 keys, through the optional `cryptography`.

Imported on first use of such a key. Raises MissingExtra where `cryptography` is not installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..exceptions import MissingExtra

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
except ImportError as error:
    raise MissingExtra("crypto", "An Ed25519 key") from error

_KEY_LENGTH = 32


def _verifies(key: Ed25519PublicKey, signature: bytes, content: bytes) -> bool:
    try:
        key.verify(signature, content)
    except InvalidSignature:
        return False
    return True


@dataclass(frozen=True, slots=True)
class PublicKey:
    """What a receiver holds. `raw` has 32 bytes, else ValueError."""

    raw: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.raw) != _KEY_LENGTH:
            raise ValueError("The secret is no Ed25519 public key: those have 32 bytes.")

    def sign(self, content: Iterable[bytes]) -> bytes:
        """Raise ValueError: a public key cannot sign."""
        raise ValueError("A public key verifies but cannot sign. Sign with the private key.")

    def matches(self, content: Iterable[bytes], candidates: Sequence[bytes]) -> bool:
        """Check every candidate, whether or not one has held already."""
        key = Ed25519PublicKey.from_public_bytes(self.raw)
        signed = b"".join(content)
        found = False
        for candidate in candidates:
            found |= _verifies(key, candidate, signed)
        return found


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """What a sender holds. `raw` is the seed of 32 bytes, alone or before the public key."""

    raw: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.raw) not in (_KEY_LENGTH, 2 * _KEY_LENGTH):
            raise ValueError("The secret is no Ed25519 private key: those have 32 or 64 bytes.")

    def sign(self, content: Iterable[bytes]) -> bytes:
        """Return the signature, 64 bytes."""
        return self._key.sign(b"".join(content))

    def matches(self, content: Iterable[bytes], candidates: Sequence[bytes]) -> bool:
        """Check every candidate against the public half."""
        return PublicKey(self._key.public_key().public_bytes_raw()).matches(content, candidates)

    @property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.raw[:_KEY_LENGTH])
