"""Read what a stranger wrote into a header: bounded, ASCII, never an exception of another kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..enums import RejectReason

#: Characters of a signature header that are looked at; a longer one is malformed. Eleven keys in
#: rotation, each with an HMAC and an Ed25519 signature, take under 1700.
MAX_HEADER_LENGTH = 4096
#: Signatures in one delivery that are compared; more are malformed. It bounds the Ed25519 work.
MAX_CANDIDATES = 32

# Fifteen digits hold every time in seconds, and in milliseconds by mistake, for thousands of years.
_TIMESTAMP = re.compile(r"[0-9]{1,15}")
# Hexadecimal and both alphabets of base64.
_SIGNATURE = re.compile(r"[0-9A-Za-z+/_-]+={0,2}")


class HeaderError(Exception):
    """A header that the signature needs is missing or malformed."""

    def __init__(self, reason: RejectReason) -> None:
        super().__init__(reason)
        self.reason = reason


def read_header(headers: Mapping[str, str], name: str) -> str:
    """Return the header as printable ASCII. Raises HeaderError.

    An absent header is MISSING; one that is there but blank, too long or not printable ASCII is
    MALFORMED.
    """
    text = headers.get(name.lower())
    if text is None:
        raise HeaderError(RejectReason.MISSING)
    readable = len(text) <= MAX_HEADER_LENGTH and text.isascii() and text.isprintable()
    if not readable or not text.strip():
        raise HeaderError(RejectReason.MALFORMED)
    return text


def read_timestamp(text: str) -> int:
    """Return Unix seconds written in ASCII digits and nothing else. Raises HeaderError."""
    if not _TIMESTAMP.fullmatch(text):
        raise HeaderError(RejectReason.MALFORMED)
    return int(text)


def read_candidate(text: str, prefix: str) -> bytes:
    """Return the one signature that follows `prefix`. Raises HeaderError.

    A field that was repeated arrives with a comma, which no signature contains.
    """
    signature = text.removeprefix(prefix)
    if not text.startswith(prefix) or not _SIGNATURE.fullmatch(signature):
        raise HeaderError(RejectReason.MALFORMED)
    return signature.encode()


def read_candidates(texts: Iterable[str]) -> list[bytes]:
    """Return the texts that can be signatures; the others are skipped. Raises HeaderError.

    None at all is malformed, and so are more than `MAX_CANDIDATES`.
    """
    candidates = [text.encode() for text in texts if _SIGNATURE.fullmatch(text)]
    if not 0 < len(candidates) <= MAX_CANDIDATES:
        raise HeaderError(RejectReason.MALFORMED)
    return candidates
