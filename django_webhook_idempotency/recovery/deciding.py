"""What is to be done about an event: decided from what both sides say of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ..enums import EventStatus
from ..models import MissingEvent, WebhookEvent, is_rejection
from .base import Sent
from .missing import rests
from .running import is_left_to_others


@dataclass(frozen=True)
class Case:
    """One event as its provider has it, as the ledger has it, and how often it was asked for."""

    key: str
    sent: Sent
    event: WebhookEvent | None
    row: MissingEvent | None


class Decision(StrEnum):
    """What is done about an event. Most values are names of the report's counts."""

    #: Run the stored body again.
    RERUN = "rerun"
    #: Ingest it, or have it sent again.
    GET = "get"
    PROCESSED = "processed"
    PENDING = "pending"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    FRESH = "fresh"
    #: It was asked for lately.
    ASKED = "asked"
    #: It was asked for too often by now, or before; counted from what is remembered of it.
    GIVE_UP = "give up"
    LEFT = "left"

    @property
    def is_settled(self) -> bool:
        """Whether the cursor may pass the event."""
        return self in _SETTLED

    @property
    def is_counted(self) -> bool:
        """Whether the report has a count of that name."""
        return self not in (Decision.RERUN, Decision.GET, Decision.GIVE_UP, Decision.LEFT)


_SETTLED = frozenset(
    {
        Decision.PROCESSED,
        Decision.REJECTED,
        Decision.UNKNOWN,
        Decision.GIVE_UP,
        Decision.LEFT,
    }
)


def decide(case: Case, fresh: datetime, attempts: int, *, anew: bool) -> Decision:
    """Decide about an event; one sent after `fresh` may still be on its way.

    After so many attempts it is given up. With `anew`, what was given up is asked for again.
    """
    event, row = case.event, case.row
    if event is not None and event.is_finished:
        return Decision.PROCESSED
    if event is not None and is_left_to_others(event):
        return Decision.PENDING
    if event is not None and is_rejected(event):
        return Decision.REJECTED
    if event is None and case.sent.accepted:
        return Decision.UNKNOWN
    if case.sent.sent_at > fresh:
        return Decision.FRESH
    again = Decision.GET if event is None else Decision.RERUN
    if row is None or (row.given_up and anew):
        return again
    if row.given_up:
        return Decision.LEFT
    if rests(row):
        return Decision.ASKED
    return Decision.GIVE_UP if row.attempts >= attempts else again


def is_rejected(event: WebhookEvent) -> bool:
    """Whether a handler has said that the event can never be processed."""
    is_dead = event.status == EventStatus.DEAD
    return is_dead and is_rejection(event.last_error)
