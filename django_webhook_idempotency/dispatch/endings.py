"""Where a queued event stands when an attempt has ended: finished, dead, or to be run again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from .. import ledger
from ..enums import EventStatus, Outcome
from ..exceptions import Ignore
from ..handlers import Handler
from ..models import WebhookEvent
from .losses import WorkerLost
from .runs import worse
from .transitions import Record, changes_done, wait_after
from .work import Result, Work


@dataclass
class Ending:
    """What came of one attempt at an event's handlers.

    `failures` are those of this attempt. Of the others, some may wait for an older event, and
    some rest until their own retry while another one's turn came earlier.
    """

    event: WebhookEvent
    work: Work
    past: Mapping[str, Record]
    failures: Mapping[Handler, Exception]
    #: How long the event waits for a turn, if it does.
    wait: timedelta | None = None
    rest_until: datetime | None = None
    #: Whether any handler was called at all.
    ran: bool = True
    #: When the handlers that failed may be tried again.
    retry_at: datetime | None = field(init=False)

    def __post_init__(self) -> None:
        provider = self.work.provider
        self.failed = {each: e for each, e in self.failures.items() if not isinstance(e, Ignore)}
        waits = [
            wait_after(error, self.event.counted_attempts, provider)
            for handler, error in self.failed.items()
            if not self.past[handler.stored_name].has_given_up(handler, provider)
        ]
        times = [timezone.now() + max(waits)] if waits else []
        if self.rest_until is not None:
            times.append(self.rest_until)
        self.retry_at = max(times, default=None)

    @property
    def error(self) -> Exception | None:
        """The failure of this attempt that counts."""
        error: Exception | None = None
        for raised in self.failed.values():
            error = worse(error, raised)
        given = [] if self.is_open else given_up(self.work, self.past)
        if error is None and any(self.past[each.stored_name].is_lost for each in given):
            return WorkerLost("The worker ended or stalled in the last attempt that a handler had.")
        return error

    @property
    def is_open(self) -> bool:
        """Whether the event is to be run again by itself."""
        return self.wait is not None or self.retry_at is not None

    @property
    def is_done(self) -> bool:
        """Whether every handler is through with the event in a good way."""
        return not (self.is_open or self.failed or given_up(self.work, self.past))

    @property
    def status(self) -> EventStatus:
        """The status that the event has from now on."""
        if self.is_open:
            troubled = any(record.failures for record in self.past.values())
            troubled |= bool(self.failed or self.event.last_error)
            return EventStatus.FAILED if troubled else EventStatus.PENDING
        if not self.is_done:
            return EventStatus.DEAD
        past = [self.past[each.stored_name] for each in self.work.handlers]
        if any(record.superseded for record in past) and not any(r.succeeded for r in past):
            return EventStatus.SUPERSEDED
        ignored = not past or (bool(self.failures) and len(past) == 1)
        return EventStatus.IGNORED if ignored else EventStatus.PROCESSED

    @property
    def result(self) -> Result:
        """What the attempt came to, for the log and the signals."""
        if self.failed or self.status == EventStatus.DEAD:
            return Result(Outcome.FAILED, self.event, self.error)
        return Result(Outcome.IN_PROGRESS if self.is_open else Outcome(self.status), self.event)

    def changes(self) -> dict[str, Any]:
        """The columns of the event that change."""
        # Where no handler was called, it has only waited, say: that costs no attempt.
        attempts = {} if self.ran else {"attempts": self.event.attempts - 1}
        if self.is_done:
            done = changes_done(self.event, self.work, None)
            return {**done, **attempts, "status": self.status}
        changes: dict[str, Any] = {
            **attempts,
            "status": self.status,
            "next_attempt_at": self._next_attempt_at(),
            "lane": self.work.lane if self.is_open else None,
            "handled_by": "",
        }
        if self.error is not None:
            changes["last_error"] = ledger.error_text(self.error)
        return changes

    def _next_attempt_at(self) -> datetime | None:
        turn = timezone.now() + self.wait if self.wait is not None else None
        return min(filter(None, [self.retry_at, turn]), default=None)


def given_up(work: Work, past: Mapping[str, Record]) -> list[Handler]:
    """The handlers that are not to be tried again by themselves, and are not through."""
    return [
        each
        for each in work.handlers
        if not past[each.stored_name].is_done
        and past[each.stored_name].has_given_up(each, work.provider)
    ]
