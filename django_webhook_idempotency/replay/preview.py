"""What a replay would run again, before anything is touched."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from .choosing import Choice

#: Events that a preview counts; beyond these it says "more than".
BOUND = 10_000


class Kind(NamedTuple):
    """What the events of one line of a preview have in common."""

    provider: str
    status: str
    event_type: str


@dataclass
class Preview:
    """How many events there are, by kind; `more` says that the count ended before they did."""

    kinds: Counter[Kind] = field(default_factory=Counter)
    more: bool = False

    @property
    def total(self) -> int:
        """The events that were counted."""
        return self.kinds.total()

    def __str__(self) -> str:
        return f"more than {self.total:,}" if self.more else f"{self.total:,}"

    def as_dict(self) -> dict[str, Any]:
        """The same for a machine."""
        return {
            "total": self.total,
            "more": self.more,
            "kinds": [{**kind._asdict(), "count": n} for kind, n in self.kinds.most_common()],
        }


def preview(choice: Choice, bound: int = BOUND) -> Preview:
    """Count what is chosen, exactly up to `bound`.

    Raises UnknownEvents, and the database's own error.
    """
    found = Preview()
    events = choice.events()
    for event in islice(events, bound):
        found.kinds[Kind(event.provider, event.status, event.event_type)] += 1
    found.more = next(events, None) is not None
    return found
