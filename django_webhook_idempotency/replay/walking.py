"""Walk the events along an index, so many rows in a statement and none that is not asked for.

The rows that one statement looks through are bounded whatever else is asked of them: first the
index alone says where the next window ends, then its rows are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connections, models
from django.db.models import F, Func, Q, QuerySet, Value

from ..models import WebhookEvent

#: Rows that one statement looks through. MariaDB makes a table of a list of a thousand.
WINDOW = 500


@dataclass(frozen=True)
class Walk:
    """All rows with one value in a column, up to the number `last`; `rows` are those wanted."""

    events: QuerySet[WebhookEvent]
    rows: QuerySet[WebhookEvent]
    column: str
    value: str
    last: int

    def beyond(self, rows: QuerySet[WebhookEvent], low: int, high: int) -> QuerySet[WebhookEvent]:
        """The rows above one number up to another, in the order of the index."""
        vendor = connections[rows.db].vendor
        if vendor == "postgresql":
            # Given an equality it may walk the primary key, through all the others.
            rows = rows.filter(self._row(" > ", low), self._row(" <= ", high))
            return rows.order_by(self.column, "pk")
        rows = rows.filter(pk__gt=low, pk__lte=high)
        if vendor == "sqlite":
            return rows.filter(**{self.column: self.value}).order_by("pk")
        between = {f"{self.column}__gte": self.value, f"{self.column}__lte": self.value}
        return rows.filter(**between).order_by(self.column, "pk")

    def _row(self, sign: str, key: int) -> Func:
        return Func(
            Func(F(self.column), F("pk"), template="(%(expressions)s)"),
            Func(Value(self.value), Value(key), template="(%(expressions)s)"),
            template="%(expressions)s",
            arg_joiner=sign,
            output_field=models.BooleanField(),
        )


def walk_by_column(walk: Walk) -> Iterator[WebhookEvent]:
    """The wanted rows of a walk by their numbers; nothing is read before it is asked for."""
    low = 0
    while True:
        window = walk.beyond(walk.events.all(), low, walk.last).values_list("pk", flat=True)
        keys = list(window[:WINDOW])
        if not keys:
            return
        yield from walk.beyond(walk.rows, low, keys[-1])
        low = keys[-1]


def walk_by_time(
    events: QuerySet[WebhookEvent],
    rows: QuerySet[WebhookEvent],
    since: datetime | None,
    before: datetime | None,
) -> Iterator[Sequence[WebhookEvent]]:
    """The wanted rows by when they were received, a window at a time."""
    limits = Q()
    if since is not None:
        limits &= Q(received_at__gte=since)
    if before is not None:
        limits &= Q(received_at__lt=before)
    last = events.order_by("-pk").values_list("pk", flat=True).first() or 0
    place: tuple[datetime, int] | None = None
    while True:
        ahead = events.filter(limits, _after(place), pk__lte=last)
        ahead = ahead.order_by("received_at", "pk")
        window = list(ahead.values_list("received_at", "pk")[:WINDOW])
        if not window:
            return
        keys = [pk for _, pk in window]
        yield sorted(rows.filter(pk__in=keys), key=lambda event: (event.received_at, event.pk))
        place = window[-1]


def _after(place: tuple[datetime, int] | None) -> Q:
    if place is None:
        return Q()
    moment, pk = place
    return Q(received_at__gte=moment) & (Q(received_at__gt=moment) | Q(pk__gt=pk))
