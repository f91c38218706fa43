"""Standard Webhooks, under its own header names and under Svix's.

Specification: https://github.com/standard-webhooks/standard-webhooks/blob/b2fa7b8719fb75d326b591077f5d1b385cfcdfae/spec/standard-webhooks.md
Svix: https://docs.svix.com/receiving/verifying-payloads/how-manual
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..enums import RejectReason
from ..exceptions import MissingExtra
from .headers import MAX_CANDIDATES, HeaderError, read_header, read_timestamp
from .matching import decode_base64, find_secret, judge, mac, matches_any
from .message import Message, Verdict
from .secrets import Secret

#: Key lengths in bytes that `check_secret` passes; `verify` takes any but an empty one. The
#: specification says 24 to 64; Svix lets its customers choose up to 75 (100 base64 characters).
MIN_KEY_LENGTH = 24
MAX_KEY_LENGTH = 75

_HMAC = "v1"
_ED25519 = "v1a"


class _Key(Protocol):
    def sign(self, content: Iterable[bytes]) -> bytes: ...

    def matches(self, content: Iterable[bytes], candidates: Sequence[bytes]) -> bool: ...


@dataclass(frozen=True, slots=True)
class _SharedKey:
    """The key of `v1`. Zero bytes pad every HMAC key, so nothing else would be an empty one."""

    raw: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not self.raw.strip(b"\0"):
            raise ValueError("The secret decodes to an empty key.")

    def sign(self, content: Iterable[bytes]) -> bytes:
        return mac(self.raw, content)

    def matches(self, content: Iterable[bytes], candidates: Sequence[bytes]) -> bool:
        return matches_any(self.sign(content), candidates)


def _read_key(secret: Secret) -> tuple[str, _Key]:
    """Return the signature version that `secret` serves, and its key.

    Raises ValueError with a sentence that doesn't show the secret, and MissingExtra.
    """
    # The alphabet of base64 has no underscore, so one means a prefix.
    prefix, underscore, encoded = secret.text.partition("_")
    if not underscore:
        prefix, encoded = "whsec", prefix
    if prefix not in ("whsec", "whpk", "whsk"):
        raise ValueError("The secret starts with none of 'whsec_', 'whpk_' and 'whsk_'.")
    try:
        raw = decode_base64(encoded)
    except ValueError:
        raise ValueError("The secret is not base64 after its prefix.") from None
    if prefix == "whsec":
        return _HMAC, _SharedKey(raw)
    from . import ed25519  # optional dependency

    return _ED25519, ed25519.PublicKey(raw) if prefix == "whpk" else ed25519.PrivateKey(raw)


@dataclass(frozen=True, slots=True)
class StandardWebhooks:
    """`<version>,<base64>` signatures, separated by spaces, over `<id>.<Unix seconds>.<body>`.

    `v1` is HMAC-SHA256 under a `whsec_` secret, whose prefix and padding may be missing; `v1a` is
    Ed25519 under a `whpk_` public key, or a `whsk_` private key where the app signs too. Unknown
    versions are skipped.

    The headers are `<prefix>-id`, `-timestamp` and `-signature`, under any of `header_prefixes`;
    `sign()` uses the first. A request that has one of them twice with different values is
    malformed: what is signed must be what the rest of the app reads.
    """

    header_prefixes: tuple[str, ...] = ("webhook", "svix")

    @property
    def signed_headers(self) -> frozenset[str]:
        """The headers that `verify` reads, in lower case; they hold signatures and no secret."""
        return frozenset(
            f"{prefix}-{part}".lower()
            for prefix in self.header_prefixes
            for part in ("id", "timestamp", "signature")
        )

    def sign(
        self,
        body: bytes,
        secret: Secret,
        *,
        timestamp: int,
        message_id: str = "",
        request: Message | None = None,
    ) -> dict[str, str]:
        """Return the three headers for `body` at `timestamp`.

        Raises ValueError if there is no message id, or the secret cannot sign.
        """
        if not message_id.strip():
            raise ValueError("Standard Webhooks sign a message id, and it is empty.")
        version, key = _read_key(secret)
        signature = base64.b64encode(key.sign(_content(message_id, str(timestamp), body))).decode()
        prefix = self.header_prefixes[0]
        return {
            f"{prefix}-id": message_id,
            f"{prefix}-timestamp": str(timestamp),
            f"{prefix}-signature": f"{version},{signature}",
        }

    def verify(
        self,
        message: Message,
        secrets: Sequence[Secret],
        *,
        now: float,
        tolerance: float | None,
    ) -> Verdict:
        """Check every signature of a version we know against every secret of it, then the time.

        A right signature outside the tolerance, on either side, is STALE; a wrong one is MISMATCH
        whatever its time. A secret that cannot be decoded matches nothing. Raises MissingExtra
        for an Ed25519 key without `cryptography`.
        """
        try:
            message_id = self._read(message.headers, "id")
            stamp = self._read(message.headers, "timestamp")
            timestamp = read_timestamp(stamp)
            candidates = _read_signatures(self._read(message.headers, "signature"))
        except HeaderError as error:
            return Verdict(error.reason)
        content = _content(message_id, stamp, message.body)

        def matches(secret: Secret) -> bool:
            try:
                version, key = _read_key(secret)
            except ValueError:
                return False
            return key.matches(content, candidates[version])

        return judge(find_secret(secrets, matches), timestamp, now=now, tolerance=tolerance)

    def check_secret(self, secret: Secret) -> str | None:
        """Say what is wrong with `secret`, without showing it; None if nothing is."""
        if error := secret.paste_error():
            return error
        try:
            _, key = _read_key(secret)
        except (ValueError, MissingExtra) as error:
            return str(error)
        if isinstance(key, _SharedKey) and not MIN_KEY_LENGTH <= len(key.raw) <= MAX_KEY_LENGTH:
            return (
                f"The secret decodes to {len(key.raw)} bytes, "
                f"not to {MIN_KEY_LENGTH} to {MAX_KEY_LENGTH}."
            )
        return None

    def message_id(self, headers: Mapping[str, str]) -> str:
        """Return the id that the signature covers; empty if no single one can be read."""
        try:
            return self._read(headers, "id")
        except HeaderError:
            return ""

    def _read(self, headers: Mapping[str, str], part: str) -> str:
        names = [f"{prefix}-{part}" for prefix in self.header_prefixes]
        values = {read_header(headers, name) for name in names if name.lower() in headers}
        if not values:
            raise HeaderError(RejectReason.MISSING)
        if len(values) > 1:
            raise HeaderError(RejectReason.MALFORMED)
        return values.pop()


def _content(message_id: str, stamp: str, body: bytes) -> tuple[bytes, bytes]:
    return f"{message_id}.{stamp}.".encode(), body


def _read_signatures(text: str) -> dict[str, list[bytes]]:
    """Return the decoded signatures of each version we know. Raises HeaderError."""
    candidates: dict[str, list[bytes]] = {_HMAC: [], _ED25519: []}
    for item in text.split(" "):
        version, _, encoded = item.partition(",")
        if version in candidates:
            try:
                candidates[version].append(decode_base64(encoded))
            except ValueError:
                continue
    if not 0 < sum(map(len, candidates.values())) <= MAX_CANDIDATES:
        raise HeaderError(RejectReason.MALFORMED)
    return candidates
