"""What a delivery says of itself, and what it may be answered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

#: What a delivery row has room for.
MAX_RETRY_NUMBER = 32767
MAX_RETRY_REASON = 64

_MARK = re.compile(r"\\.|.", re.DOTALL)


def compound(*parts: str) -> str:
    """Join parts with colons so that different parts never give the same text."""
    return ":".join(part.replace("\\", "\\\\").replace(":", "\\:") for part in parts)


def parts_of(text: str) -> list[str]:
    """Take apart what `compound` has joined."""
    parts = [""]
    for mark in _MARK.findall(text):
        if mark == ":":
            parts.append("")
        else:
            parts[-1] += mark[-1]
    return parts


@dataclass(frozen=True, slots=True)
class Identity:
    """What a delivery says it is about.

    `event_id` is never blank. `secondary` is a second thing that must be unique in the same
    provider and scope: two events that share it are one.
    """

    event_id: str
    event_type: str = ""
    scope: str = ""
    secondary: str = ""


@dataclass(frozen=True, slots=True)
class Redelivery:
    """What the provider says of its own retry: its number from 1, and why."""

    number: int | None = None
    reason: str = ""

    @classmethod
    def parse(cls, number: str, reason: str = "") -> Redelivery:
        """Read header values that nobody vouches for; what makes no sense is left out."""
        count = int(number) if re.fullmatch(r"[0-9]{1,5}", number) else 0
        return cls(
            number=count if 0 < count <= MAX_RETRY_NUMBER else None,
            reason="".join(filter(str.isprintable, reason))[:MAX_RETRY_REASON],
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """An exact HTTP answer. `body` is kept out of `repr`: a challenge may be a secret."""

    status: int = 200
    body: bytes = field(default=b"", repr=False)
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
