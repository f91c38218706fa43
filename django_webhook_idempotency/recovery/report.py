"""What a run of recovery found and did, source by source."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

logger = logging.getLogger("django_webhook_idempotency")

#: The counts of a report in their order, and how a person reads them.
LINES: Mapping[str, str] = {
    "found": "found",
    "processed": "already processed",
    "pending": "pending",
    "rerun": "run again here",
    "ingested": "ingested",
    "redelivered": "redelivered",
    "failed": "failed again",
    "asked": "asked for before",
    "unwanted": "not wanted",
    "unknown": "accepted but unknown",
    "rejected": "rejected for good",
    "fresh": "too fresh",
    "given_up": "given up",
    "leaving": "about to leave the window",
}


@dataclass
class SourceReport:
    """What came of the events that one source has sent since a time.

    `failed` counts among `rerun` and `ingested`, `leaving` among all that is not settled.
    `retry_at` is when the API can be asked again, `is_cut` says that a limit ended the run, and
    `is_busy` that another run is at work on the source.
    """

    source: str
    since: datetime
    found: int = 0
    processed: int = 0
    pending: int = 0
    rerun: int = 0
    ingested: int = 0
    redelivered: int = 0
    failed: int = 0
    asked: int = 0
    unwanted: int = 0
    unknown: int = 0
    rejected: int = 0
    fresh: int = 0
    given_up: int = 0
    leaving: int = 0
    retry_at: datetime | None = None
    is_cut: bool = False
    is_busy: bool = False
    problems: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether every event was looked at."""
        return not (self.is_cut or self.is_busy or self.retry_at or self.problems)

    def log(self) -> None:
        """Write one line on what was done, if there was anything to do."""
        told = {name: count for name in LINES if (count := getattr(self, name))}
        idle = told.keys() <= {"found", "processed"} and self.retry_at is None
        logger.log(
            logging.DEBUG if idle else logging.INFO,
            "webhook recovery: source=%s %s%s",
            self.source,
            " ".join(f"{name}={count}" for name, count in told.items()) or "found=0",
            f" retry_at={self.retry_at.isoformat()}" if self.retry_at else "",
        )

    def as_dict(self) -> dict[str, Any]:
        """The same for a machine."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {
            "since": self.since.isoformat(),
            "retry_at": self.retry_at.isoformat() if self.retry_at else None,
        }


@dataclass
class Allowance:
    """How many events a run may still ask for or run again; None for any number."""

    left: int | None = None

    def take(self) -> bool:
        """Use one, if there is one."""
        if self.left is None:
            return True
        self.left -= 1
        return self.left >= 0
