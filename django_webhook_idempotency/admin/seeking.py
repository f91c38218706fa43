"""Read one page of a list from a place onwards: as cheap on the last page as on the first.

No page is counted or skipped to. Where no index serves all that is asked for, a bounded number
of rows is looked through and the page says so, instead of a scan of the whole table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connections, models
from django.db.models import Case, F, Func, Q, Value, When
from django.utils.dateparse import parse_datetime

#: The largest number that every database takes for a primary key.
MAX_KEY = 2**63 - 1
TIME = "received_at"
SIGNS = {"lt": " < ", "lte": " <= ", "gt": " > ", "gte": " >= "}


@dataclass(frozen=True)
class Place:
    """A row that a page starts beyond; in a list by time, `key` 0 is before all of that time."""

    key: int
    moment: datetime | None = None

    def __str__(self) -> str:
        return f"{self.key}" if self.moment is None else f"{self.key}_{self.moment.isoformat()}"

    @classmethod
    def parse(cls, text: str, *, by_time: bool) -> Place:
        """Read a place from a query string. Raises ValueError."""
        key, mark, time = text.partition("_")
        if not (key.isascii() and key.isdigit() and int(key) <= MAX_KEY):
            raise ValueError("not a row's number")
        moment = parse_datetime(time) if by_time else None
        if bool(mark) != by_time or (by_time and moment is None):
            raise ValueError("a place in another list")
        return cls(int(key), moment)

    def beyond(self, *, older: bool) -> Q:
        """The rows on the older or the newer side in a list by time."""
        side = "lt" if older else "gt"
        return Q(**{f"{TIME}__{side}e": self.moment}) & (
            Q(**{f"{TIME}__{side}": self.moment}) | Q(**{f"pk__{side}": self.key})
        )


@dataclass(frozen=True)
class Page:
    """Rows, newest first, and where its neighbours start.

    `looked_through` is the number of rows after which the search gave up, if it did.
    """

    rows: list[Any] = field(default_factory=list)
    newer: Place | None = None
    older: Place | None = None
    looked_through: int | None = None


@dataclass(frozen=True)
class Seek:
    """How to read a list: by row number, or by time where it is limited to dates.

    `fixed` are columns with one value each that lead the index that is walked. `walked` are all
    rows with these, if `rows` asks for more than that index serves; of them, `limit` are looked
    through for one page.
    """

    rows: models.QuerySet[Any]
    walked: models.QuerySet[Any] | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)
    by_time: bool = False
    size: int = 50
    limit: int = 50_000

    def page(self, place: Place | None = None, *, older: bool = True) -> Page:
        """The rows on one side of a place; without one, the newest."""
        edge = self._edge(place, older=older)
        found = self._between(self.rows, place, edge, older=older)
        rows = list(found[: self.size + 1])
        is_full = len(rows) > self.size
        rows = rows[: self.size]
        onward = self._place_of(rows[-1]) if is_full else edge
        if onward is None and not older:
            return self.page()  # the newest there are: show a full page of them
        back = None if place is None else self._way_back(rows, place, older=older)
        looked_through = self.limit if edge is not None and not is_full else None
        if older:
            return Page(rows, newer=back, older=onward, looked_through=looked_through)
        return Page(rows[::-1], newer=onward, older=back, looked_through=looked_through)

    def _edge(self, place: Place | None, *, older: bool) -> Place | None:
        """The last row that may be looked at, found in the index alone; None if all may be."""
        if self.walked is None:
            return None
        column = TIME if self.by_time else "pk"
        walked = self._between(self.walked, place, None, older=older)
        for value in walked.values_list(column, flat=True)[self.limit - 1 : self.limit]:
            if not self.by_time:
                return Place(value)
            return Place(0 if older else MAX_KEY, value)
        return None

    def _between(
        self, rows: models.QuerySet[Any], place: Place | None, edge: Place | None, *, older: bool
    ) -> models.QuerySet[Any]:
        """The rows beyond a place up to an edge, itself included, the nearest first."""
        if self.by_time:
            rows = rows.filter(**self.fixed)
            if place is not None:
                rows = rows.filter(place.beyond(older=older))
            if edge is not None:
                rows = rows.filter(**{f"{TIME}__{'gte' if older else 'lte'}": edge.moment})
            return rows.order_by(*_directed([TIME, "pk"], older=older))
        start = ("lt" if older else "gt", place.key) if place else None
        end = ("gte" if older else "lte", edge.key) if edge else None
        upper, lower = (start, end) if older else (end, start)
        upper, lower = upper or ("lte", MAX_KEY), lower or ("gte", 0)
        directed = _directed([*self.fixed, "pk"], older=older)
        vendor = connections[rows.db].vendor
        # Given an equality, PostgreSQL may walk the primary key instead and read all that is newer
        # than the first match, and MariaDB enters the index at its newest row, not at the place.
        if vendor == "postgresql" and self.fixed:
            # Given a range of the primary key, PostgreSQL may read all of that and sort it.
            return rows.filter(self._row(*upper), self._row(*lower)).order_by(*directed)
        for operator, key in (upper, lower):
            rows = rows.filter(**{f"pk__{operator}": key})
        if vendor == "sqlite":
            return rows.filter(**self.fixed).order_by(*_directed(["pk"], older=older))
        for name, value in self.fixed.items():
            rows = rows.filter(**{f"{name}__gte": value, f"{name}__lte": value})
        return rows.order_by(*directed)

    def _row(self, operator: str, key: int) -> Func:
        """A bound of the index that is walked: its columns compared as one row."""
        return Func(
            Func(*map(F, [*self.fixed, "pk"]), template="(%(expressions)s)"),
            Func(*map(Value, [*self.fixed.values(), key]), template="(%(expressions)s)"),
            template="%(expressions)s",
            arg_joiner=SIGNS[operator],
            output_field=models.BooleanField(),
        )

    def _place_of(self, row: Any) -> Place:
        return Place(row.pk, getattr(row, TIME) if self.by_time else None)

    def _way_back(self, rows: list[Any], place: Place, *, older: bool) -> Place:
        """Beyond the first row; from an empty page, back to the row that it started from."""
        if rows:
            return self._place_of(rows[0])
        key = max(place.key - 1, 0) if older else min(place.key + 1, MAX_KEY)
        return Place(key, place.moment)


def _directed(columns: list[str], *, older: bool) -> list[str]:
    return [f"-{column}" if older else column for column in columns]


def unweighed(asked: Q, database: str) -> Q | Case:
    """What no index serves, in a form from which PostgreSQL does not guess how few rows match.

    Where it expects fewer than a page it may read the range in another way than in order, all of
    it. Now it expects every second row to match, so that a walk in order is soon over.
    """
    if connections[database].vendor != "postgresql":
        return asked
    return Case(When(asked, then=Value(True)), default=Value(False))


def served(model: type[models.Model], equal: Collection[str], order: str) -> list[str]:
    """The columns with one value each, of `equal`, that an index has before the column `order`.

    In the order of the index; the most that one index can do, and empty if there is none.
    """
    best: list[str] = []
    for index in model._meta.indexes:
        names = [name for name, _ in index.fields_orders]
        if order not in names or index.condition is not None:
            continue
        leading = names[: names.index(order)]
        if set(leading) <= set(equal) and len(leading) > len(best):
            best = leading
    return best
