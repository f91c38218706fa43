"""Compare without a shortcut, then judge the time."""

from __future__ import annotations

import base64
import hmac
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from ..enums import RejectReason
from .message import Verdict
from .secrets import Secret

Digest = Literal["sha1", "sha256", "sha512"]
Encoding = Literal["hex", "base64", "base64url"]


def mac(key: bytes, content: Iterable[bytes], digest: Digest = "sha256") -> bytes:
    """Return the HMAC over the parts of `content`, one after the other, without joining them."""
    signer = hmac.new(key, digestmod=digest)
    for part in content:
        signer.update(part)
    return signer.digest()


def encode(signature: bytes, encoding: Encoding) -> bytes:
    """Return `signature` as the ASCII text that stands in a header; base64url is not padded."""
    if encoding == "hex":
        return signature.hex().encode()
    if encoding == "base64":
        return base64.b64encode(signature)
    return base64.urlsafe_b64encode(signature).rstrip(b"=")


def decode_base64(text: str) -> bytes:
    """Decode the standard alphabet; missing padding is forgiven.

    Raises ValueError for anything else, and for nothing at all.
    """
    if not text:
        raise ValueError("There is nothing to decode.")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def matches_any(expected: bytes, candidates: Sequence[bytes]) -> bool:
    """Compare `expected` with every candidate, whether or not one has matched already."""
    found = False
    for candidate in candidates:
        found |= hmac.compare_digest(expected, candidate)
    return found


def find_secret(secrets: Sequence[Secret], matches: Callable[[Secret], bool]) -> Secret | None:
    """Try every secret, whether or not one has matched already; return the first that did."""
    found = None
    for secret in secrets:
        if matches(secret) and found is None:
            found = secret
    return found


def judge(secret: Secret | None, timestamp: int, *, now: float, tolerance: float | None) -> Verdict:
    """Say what a matching `secret`, or None, and the signed time amount to.

    Whole seconds are compared: at a tolerance of 300, a difference of 300 is accepted and 301 is
    not, on either side of `now`; 0 accepts the current second only. The time counts only once the
    signature holds, so STALE means a clock or a late retry, never a wrong secret.
    """
    if secret is None:
        return Verdict(RejectReason.MISMATCH, timestamp=timestamp)
    if tolerance is not None and abs(math.floor(now) - timestamp) > tolerance:
        return Verdict(RejectReason.STALE, timestamp=timestamp)
    return Verdict(secret=secret, timestamp=timestamp)
