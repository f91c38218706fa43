"""The columns of an event that change when a run has ended, and what is left of it to run."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.utils import timezone

from .. import ledger
from ..enums import FINISHED, EventStatus
from ..exceptions import Ignore, Reject, Retry, Superseded
from ..handlers import Handler
from ..models import HandlerRun, WebhookEvent, is_rejection
from ..providers import Provider
from .replayed import Replays
from .responses import remembered
from .runs import BODY_COLUMNS
from .work import Work

#: Doublings after which any back-off has reached its limit; more would only overflow.
_MOST_DOUBLINGS = 40


@dataclass
class Record:
    """What a handler's runs on one event have come to so far."""

    succeeded: bool = False
    failures: int = 0
    rejected: bool = False
    superseded: bool = False
    #: The numbers of the runs that never ended: their worker was killed, or stalled.
    lost: set[int] = field(default_factory=set)
    #: The numbers of all runs.
    numbers: set[int] = field(default_factory=set)
    #: Whether the event was finished, or given up, before another handler alone was replayed.
    left_out: bool = False
    given_up: bool = False

    @property
    def is_done(self) -> bool:
        """Whether the handler is through with the event in a good way."""
        return self.succeeded or self.superseded or self.left_out

    def has_given_up(self, handler: Handler, provider: Provider) -> bool:
        """Whether the handler is not to be tried again by itself."""
        failures = self.failures + len(self.lost)
        return self.given_up or self.rejected or failures >= attempts_of(handler, provider)

    @property
    def is_lost(self) -> bool:
        """Whether the latest run never ended."""
        return bool(self.lost) and max(self.numbers) in self.lost


def attempts_of(handler: Handler, provider: Provider) -> int:
    """How many failed runs a handler has on one event."""
    return handler.max_attempts or provider.max_attempts


def records(
    event: WebhookEvent, handlers: Iterable[Handler], replays: Replays | None = None
) -> dict[str, Record]:
    """What each handler's runs have come to, by the handler's stored name.

    Failures of attempts that are forgiven do not count, nor do successes before a replay. What
    runs at this moment counts as lost. `replays` are those of the event, if the caller has read
    them.
    """
    replays = replays or Replays.of(event)
    found = {handler.stored_name: Record() for handler in handlers}
    runs = (
        HandlerRun.objects.using(ledger.alias())
        .filter(event=event)
        .values_list("handler", "error_class", "number", "finished_at")
    )
    for name, error_class, number, finished_at in runs:
        record = found.setdefault(name, Record())
        terms = replays.terms_of(name)
        record.numbers.add(number)
        if finished_at is None:
            if number > terms.forgiven:
                record.lost.add(number)
            continue
        if number > terms.forgotten:
            record.succeeded |= not error_class
            record.superseded |= error_class == Superseded.__name__
        if number > terms.forgiven:
            record.failures += error_class not in ("", Superseded.__name__)
            record.rejected |= is_rejection(error_class)
    for name, record in found.items():
        terms = replays.terms_of(name)
        record.left_out, record.given_up = terms.left_out, terms.given_up
    return found


def remaining(event: WebhookEvent, handlers: Sequence[Handler]) -> list[Handler]:
    """The handlers of an event that are not through with it yet."""
    past = records(event, handlers)
    return [handler for handler in handlers if not past[handler.stored_name].is_done]


def backoff(attempts: int, provider: Provider) -> timedelta:
    """A random wait after so many failed attempts: exponential back-off with full jitter."""
    doublings = min(max(attempts - 1, 0), _MOST_DOUBLINGS)
    longest = min(
        provider.backoff.total_seconds() * 2**doublings, provider.backoff_max.total_seconds()
    )
    return timedelta(seconds=random.uniform(0, longest))  # noqa: S311


def wait_after(error: BaseException, attempts: int, provider: Provider) -> timedelta:
    """How long an event waits after a failed attempt: as its handler asked, or a back-off."""
    return error.after if isinstance(error, Retry) else backoff(attempts, provider)


def status_after(error: BaseException, attempts: int, work: Work) -> EventStatus:
    """Where an event stands after a run that ended in `error`."""
    if isinstance(error, Ignore):
        superseded = isinstance(error, Superseded)
        return EventStatus.SUPERSEDED if superseded else EventStatus.IGNORED
    if isinstance(error, Reject) or attempts >= work.max_attempts:
        return EventStatus.DEAD
    return EventStatus.FAILED


def changes_after(error: BaseException, attempts: int, work: Work) -> dict[str, Any]:
    """The columns of an event that a failed run changes."""
    status = status_after(error, attempts, work)
    finished = status in FINISHED
    again = status == EventStatus.FAILED and (work.lane is not None or isinstance(error, Retry))
    wait = wait_after(error, attempts, work.provider)
    return {
        "status": status,
        "attempts": attempts,
        "processed_at": timezone.now() if finished else None,
        "handled_by": "",
        "last_error": "" if finished else ledger.error_text(error),
        "next_attempt_at": timezone.now() + wait if again else None,
        "lane": work.lane if status == EventStatus.FAILED else None,
    }


def changes_done(event: WebhookEvent, work: Work, value: Any) -> dict[str, Any]:
    """The columns of a stored event that change when nothing is left to run.

    `value` is what its sole handler returned.
    """
    changes: dict[str, Any] = {
        "status": EventStatus.PROCESSED if work.handlers else EventStatus.IGNORED,
        "processed_at": timezone.now(),
        "next_attempt_at": None,
        "lane": None,
        "last_error": "",
    }
    if not work.provider.is_signed:
        changes |= {name: getattr(event, name) for name in BODY_COLUMNS}
    if work.replay_response:
        changes |= remembered(value)
    if work.provider.store_body == "unfinished":
        changes["body"] = None
    return changes
