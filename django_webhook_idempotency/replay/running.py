"""Arm events one after the other, and see to it that somebody runs them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from django.utils import timezone

from .. import ledger
from ..dispatch.claims import claim_event
from ..dispatch.queued import give_back, run_claim
from ..dispatch.runs import patience, retried
from ..enums import FINISHED, EventStatus
from ..exceptions import Superseded
from ..models import HandlerRun, WebhookEvent
from .arming import Armed, Request, arm
from .groups import Group, groups_of
from .refusals import Refusal, Refused
from .reports import GOOD, Fate, Line, Report

#: Events whose groups are looked up together.
PART = 100
#: Seconds that the end of an event is waited for that somebody else runs.
TIMEOUT = 60.0


@dataclass
class Pace:
    """At most so many a second; None for no limit. Raises ValueError for none at all."""

    rate: float | None = None
    _next: float = 0.0

    def __post_init__(self) -> None:
        if self.rate is not None and not self.rate > 0:
            raise ValueError(f"{self.rate!r} is no number of events a second above zero.")

    def wait(self) -> None:
        """Sleep until the next one may go."""
        if self.rate is None:
            return
        time.sleep(max(self._next - time.monotonic(), 0))
        self._next = max(self._next, time.monotonic()) + 1 / self.rate


@dataclass
class Replayer:
    """Runs events again, the ones that the queue is for by the queue, the others here.

    With `canary`, the first event of each group has to succeed before the others are touched;
    its end is waited for, for `timeout` seconds where somebody else runs it. Nothing is begun
    after `max_seconds`.
    """

    request: Request
    canary: bool = False
    timeout: float = TIMEOUT
    rate: float | None = None
    max_seconds: float | None = None
    report: Report = field(default_factory=Report)

    def __post_init__(self) -> None:
        self._pace = Pace(self.rate)
        #: Whether the first of a group has succeeded.
        self._tried: dict[Group, Fate] = {}
        self._started = time.monotonic()

    def lines(self, events: Iterable[WebhookEvent]) -> Iterator[Line]:
        """Run events again, telling of each what became of it; stop asking, and it stops.

        An event is left alone that has changed since the caller read it. Raises StoreUnavailable,
        or the database's own error.
        """
        for part in _parts(events):
            groups = groups_of(part) if self.canary else {}
            for event in part:
                line = self._line(event, groups.get(event.pk))
                self.report.add(line)
                yield line

    def _line(self, event: WebhookEvent, group: Group | None) -> Line:
        fate, refusal, note = Fate.LEFT, None, ""
        first = self._tried.get(group) if group is not None else None
        if first is not None and first not in GOOD:
            fate, note = Fate.HELD_BACK, "The first event of its group did not succeed."
        elif not self._is_over:
            self._pace.wait()
            is_canary = group is not None and first is None
            try:
                fate = self._again(event, must_end=is_canary)
            except Refused as error:
                fate, refusal, note = Fate.REFUSED, error.refusal, str(error)
            # One that is refused says nothing of its group.
            if is_canary and group is not None and fate != Fate.REFUSED:
                self._tried[group] = fate
        return Line(event.pk, event.provider, event.event_id, fate, refusal, note)

    @property
    def _is_over(self) -> bool:
        return self.max_seconds is not None and time.monotonic() - self._started >= self.max_seconds

    def _again(self, event: WebhookEvent, *, must_end: bool) -> Fate:
        armed = arm(event, self.request)
        if armed.queued and not must_end:
            return Fate.QUEUED
        # What ran here has ended; if it has only waited for its turn, a worker takes it.
        is_over = not armed.queued and run_here(armed, self.timeout)
        fate = fate_of(armed, 0 if is_over and not must_end else self.timeout)
        if fate is None:
            return Fate.UNDECIDED if must_end else Fate.QUEUED
        return fate


def replay(
    events: Iterable[WebhookEvent],
    *,
    by: str,
    reason: str,
    handler: str = "",
    canary: bool = False,
    timeout: float = TIMEOUT,
    rate: float | None = None,
    max_seconds: float | None = None,
) -> Report:
    """Run events again: all handlers of a finished one, those that are left of an unfinished one.

    With a `handler`, that one and none of the others. An event that has changed since the caller
    read it is left alone. Raises ValueError for a blank `by` or `reason` and a `rate` that is not
    above zero, StoreUnavailable, or the database's own error.
    """
    replayer = Replayer(Request(by, reason, handler), canary, timeout, rate, max_seconds)
    for _ in replayer.lines(events):
        pass
    return replayer.report


def run_here(armed: Armed, timeout: float) -> bool:
    """Run an armed event in this thread, as a worker would; False if somebody was quicker."""
    claim = None
    for _ in patience(timeout):
        claim = retried(lambda: claim_event(armed.pk, armed.lane))
        # Somebody may lock it for a moment who does not run it: another replay, say.
        if claim is not None or not _is_due(armed.pk):
            break
    if claim is None:
        return False
    try:
        run_claim(claim)
    except (KeyboardInterrupt, SystemExit):
        # It is to go on at once, in a worker or the next replay.
        give_back(claim)
        raise
    return True


def _is_due(pk: int) -> bool:
    events = WebhookEvent.objects.using(ledger.alias())
    return events.due(timezone.now()).filter(pk=pk).exists()


def fate_of(armed: Armed, timeout: float) -> Fate | None:
    """What became of an armed event, waiting so many seconds for its end; None without one."""
    for _ in patience(timeout):
        fate = _fate_now(armed)
        if fate is not None:
            return fate
    return None


def _fate_now(armed: Armed) -> Fate | None:
    events = WebhookEvent.objects.using(ledger.alias())
    row = events.filter(pk=armed.pk).values_list("status", "attempts").first()
    if row is None:
        raise Refused(Refusal.GONE, "It is gone: purged, perhaps.")
    status, attempts = row
    if status == EventStatus.PROCESSING or attempts <= armed.after:
        return None
    if armed.handler:
        return _fate_of_handler(armed)
    if status in FINISHED:
        return Fate(status)
    return None if status == EventStatus.PENDING else Fate.FAILED


def _fate_of_handler(armed: Armed) -> Fate | None:
    """What the newest run of the handler came to, however the event stands for the others."""
    runs = HandlerRun.objects.using(ledger.alias()).filter(
        event=armed.pk, number__gt=armed.after, finished_at__isnull=False
    )
    ends = [
        error_class
        for name, error_class in runs.order_by("number", "pk").values_list("handler", "error_class")
        if name == armed.handler
    ]
    if not ends:
        return None
    if ends[-1] == Superseded.__name__:
        return Fate.SUPERSEDED
    return Fate.FAILED if ends[-1] else Fate.PROCESSED


def _parts(events: Iterable[WebhookEvent]) -> Iterator[Sequence[WebhookEvent]]:
    source = iter(events)
    while part := list(islice(source, PART)):
        yield part
