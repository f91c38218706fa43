"""How vendors write the time that they sign."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Literal

from ..enums import RejectReason
from .headers import HeaderError, read_timestamp

#: Unix seconds, Unix milliseconds, or a date and time of ISO 8601 with its offset.
TimeUnit = Literal["s", "ms", "iso"]

_ISO = re.compile(
    r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?P<fraction>\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})", re.ASCII
)


def read_time(text: str, unit: TimeUnit) -> int:
    """Return Unix seconds. Raises HeaderError."""
    if unit == "iso":
        return _read_iso(text)
    number = read_timestamp(text)
    return number // 1000 if unit == "ms" else number


def write_time(timestamp: int, unit: TimeUnit) -> str:
    """Return Unix seconds as the vendor writes them."""
    if unit == "iso":
        return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return str(timestamp * 1000 if unit == "ms" else timestamp)


def _read_iso(text: str) -> int:
    # Nine digits of a second are more than datetime reads on every Python.
    match = _ISO.fullmatch(text)
    if match is None:
        raise HeaderError(RejectReason.MALFORMED)
    whole = text.replace(match["fraction"] or "", "", 1) if match["fraction"] else text
    try:
        return int(datetime.fromisoformat(whole).timestamp())
    except (ValueError, OverflowError):
        raise HeaderError(RejectReason.MALFORMED) from None
