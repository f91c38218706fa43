"""Which events: chosen by what the indexes serve, and read a bounded number at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import merge

from django.db.models import Q, QuerySet

from .. import ledger
from ..enums import FINISHED, EventStatus
from ..handlers import Handler
from ..models import WebhookEvent, displayable
from .groups import errors_of
from .walking import Walk, walk_by_column, walk_by_time

#: The largest number that every database takes for a primary key.
MAX_KEY = 2**63 - 1
#: More events than these do not share an id.
FOUND_LIMIT = 1000
#: Events whose errors are read together.
PART = 100
#: What is chosen where neither a status nor an event is named: what will not run by itself soon.
DEFAULT = (EventStatus.FAILED, EventStatus.DEAD)
#: What is read of an event; never its body.
READ = (
    "pk", "provider", "scope", "event_id", "event_type", "status", "attempts", "received_at",
    "last_error",
)  # fmt: skip


class UnknownEvents(LookupError):
    """Some of the events that were asked for by name are not here."""


@dataclass(frozen=True)
class Choice:
    """What to choose by; whatever is given has to hold.

    `numbers` are primary keys, `event_ids` the provider's own; `types` are patterns as handlers
    have them. `since` is inclusive, `before` is not. `error` is the class of what a handler failed
    with the last time, `error_in` that handler. Finished events are chosen only by name or status.
    """

    numbers: Sequence[int] = ()
    event_ids: Sequence[str] = ()
    providers: Sequence[str] = ()
    types: Sequence[str] = ()
    statuses: Sequence[str] = ()
    scope: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    error: str = ""
    error_in: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said at all."""
        return self == Choice()

    @property
    def is_by_name(self) -> bool:
        """Whether single events are named."""
        return bool(self.numbers or self.event_ids)

    def events(self) -> Iterator[WebhookEvent]:
        """The events, the oldest first, as they were when they were read.

        Raises UnknownEvents, and the database's own error.
        """
        for window in self._windows():
            matching = [event for event in window if self._wants(event)]
            if self.error or self.error_in:
                errors = errors_of(matching)
                matching = [event for event in matching if self._is_in(errors[event.pk])]
            yield from matching

    @property
    def _statuses(self) -> Sequence[str]:
        return self.statuses or (() if self.is_by_name else DEFAULT)

    def _windows(self) -> Iterator[Sequence[WebhookEvent]]:
        """Parts of what the best index serves, each read in a statement that reads no further."""
        events = WebhookEvent.objects.using(ledger.alias())
        rows = events.filter(self._condition).only(*READ)
        if self.is_by_name:
            numbers = self._named(events)
            for start in range(0, len(numbers), PART):
                part = rows.filter(pk__in=numbers[start : start + PART])
                yield sorted(part, key=lambda event: event.pk)
            return
        statuses = dict.fromkeys(self._statuses)
        if FINISHED & set(statuses) and (self.since or self.before):
            yield from walk_by_time(events, rows, self.since, self.before)
        elif FINISHED & set(statuses) and self.providers:
            yield from self._merged(rows, "provider", dict.fromkeys(self.providers))
        else:
            yield from self._merged(rows, "status", statuses)

    def _merged(
        self, rows: QuerySet[WebhookEvent], column: str, values: dict[str, None]
    ) -> Iterator[Sequence[WebhookEvent]]:
        """Several walks in one order. What a replay moves from one to the other comes once."""
        events = WebhookEvent.objects.using(ledger.alias())
        last = events.order_by("-pk").values_list("pk", flat=True).first() or 0
        walks = [
            walk_by_column(Walk(events, rows.filter(**{column: value}), column, value, last))
            for value in values
        ]
        seen, part = 0, list[WebhookEvent]()
        for event in merge(*walks, key=lambda event: event.pk):
            if event.pk > seen:
                seen = event.pk
                part.append(event)
            if len(part) == PART:
                yield part
                part = []
        yield part

    def _named(self, events: QuerySet[WebhookEvent]) -> list[int]:
        """The numbers of the events that were named, each read by its index."""
        keys = events.order_by().values_list("pk", flat=True)
        ids = events.order_by().values_list("pk", "event_id")
        found: set[int] = set()
        missing: list[str] = []
        for number in dict.fromkeys(self.numbers):
            known = set(keys.filter(pk=number)) if 0 < number <= MAX_KEY else set()
            found |= known
            missing += [] if known else [f"#{number}"]
        for event_id in dict.fromkeys(self.event_ids):
            wanted = displayable(event_id)
            rows = ids.filter(event_id=wanted)
            if self.providers:
                rows = rows.filter(provider__in=self.providers)
            # A database may take other letters for equal.
            known = {pk for pk, spelling in rows[:FOUND_LIMIT] if spelling == wanted}
            found |= known
            missing += [] if known else [event_id]
        if missing:
            raise UnknownEvents(f"No such event is here: {', '.join(missing)}.")
        return sorted(found)

    @property
    def _condition(self) -> Q:
        """What a statement can ask; databases that take letters for equal may find more."""
        asked = Q()
        if self.providers:
            asked &= Q(provider__in=self.providers)
        if self._statuses:
            asked &= Q(status__in=self._statuses)
        if self.scope is not None:
            asked &= Q(scope=displayable(self.scope))
        if self.since is not None:
            asked &= Q(received_at__gte=self.since)
        if self.before is not None:
            asked &= Q(received_at__lt=self.before)
        if self.types:
            asked &= _type_condition(self.types)
        return asked

    def _wants(self, event: WebhookEvent) -> bool:
        """Whether an event that a statement found is exactly one of those asked for."""
        if self.scope is not None and event.scope != displayable(self.scope):
            return False
        return not self.types or any(
            Handler(_nothing, pattern=pattern).wants(event.provider, event.event_type)
            for pattern in self.types
        )

    def _is_in(self, errors: Sequence[tuple[str, str]]) -> bool:
        return any(
            self.error in ("", error) and self.error_in in ("", handler)
            for error, handler in errors
        )


def _type_condition(patterns: Sequence[str]) -> Q:
    asked = Q()
    for pattern in patterns:
        if pattern == "*":
            return Q()
        prefix = pattern.endswith(".*")
        asked |= Q(event_type__startswith=pattern[:-1]) if prefix else Q(event_type=pattern)
    return asked


def _nothing(event: WebhookEvent) -> None:
    """A handler that stands for its pattern alone."""
