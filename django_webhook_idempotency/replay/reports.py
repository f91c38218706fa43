"""What came of a replay, event by event and in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from .refusals import Refusal


class Fate(models.TextChoices):
    """What became of one event that was to run again."""

    PROCESSED = "processed", _("processed")
    IGNORED = "ignored", _("ignored")
    SUPERSEDED = "superseded", _("superseded")
    #: It failed again; it stays unfinished.
    FAILED = "failed", _("failed")
    #: A worker runs it, or will.
    QUEUED = "queued", _("left to the workers")
    REFUSED = "refused", _("refused")
    #: The first of its group did not succeed, so that this one was not touched.
    HELD_BACK = "held_back", _("held back")
    #: The first of its group has come to no end in time.
    UNDECIDED = "undecided", _("not ended in time")
    #: The time was up before it.
    LEFT = "left", _("left for another time")


#: The ends of an event that lets the rest of its group go on.
GOOD = frozenset({Fate.PROCESSED, Fate.IGNORED, Fate.SUPERSEDED})
#: What makes a replay as a whole one that somebody has to look at.
BAD = frozenset({Fate.FAILED, Fate.REFUSED, Fate.HELD_BACK, Fate.UNDECIDED, Fate.LEFT})


@dataclass(frozen=True)
class Line:
    """What became of one event. `note` says why, for a person."""

    pk: int
    provider: str
    event_id: str
    fate: Fate
    refusal: Refusal | None = None
    note: str = ""


@dataclass
class Report:
    """What became of all of them; `first` are the first lines that somebody has to look at."""

    counts: Counter[Fate] = field(default_factory=Counter)
    refusals: Counter[Refusal] = field(default_factory=Counter)
    first: list[Line] = field(default_factory=list)

    #: How many lines are kept.
    KEPT = 20

    def add(self, line: Line) -> None:
        """Count one event."""
        self.counts[line.fate] += 1
        if line.refusal is not None:
            self.refusals[line.refusal] += 1
        if line.fate in BAD and len(self.first) < self.KEPT:
            self.first.append(line)

    @property
    def total(self) -> int:
        """How many events were looked at."""
        return self.counts.total()

    @property
    def is_good(self) -> bool:
        """Whether nothing failed, was refused or held back."""
        return not any(self.counts[fate] for fate in BAD)

    def as_dict(self) -> dict[str, Any]:
        """The same for a machine."""
        return {
            "good": self.is_good,
            "total": self.total,
            "counts": {fate.value: self.counts[fate] for fate in Fate},
            "refusals": {refusal.value: count for refusal, count in self.refusals.items()},
            "first": [
                {
                    "number": line.pk,
                    "provider": line.provider,
                    "event": line.event_id,
                    "fate": line.fate.value,
                    "refusal": line.refusal.value if line.refusal else None,
                    "note": line.note,
                }
                for line in self.first
            ],
        }
