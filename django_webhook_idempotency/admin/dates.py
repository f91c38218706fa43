"""The date drill-down: what Django's date hierarchy looks like, without a scan of the table.

Django asks the database for every distinct day of every row. Here the first and the last time
are read through the index, and the calendar between them is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.conf import settings
from django.utils import formats, timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.text import capfirst
from django.utils.translation import gettext as _

FROM, BEFORE = "received_at__gte", "received_at__lt"
PARAMETERS = (FROM, BEFORE)

#: Years outside of these cannot be told in every time zone.
_EARLIEST, _LATEST = 1900, 9000

Link = Callable[[date | None, date | None], str]


@dataclass(frozen=True)
class Choice:
    """One entry of the drill-down; the one that is chosen has no link."""

    title: str
    link: str = ""


@dataclass(frozen=True)
class DrillDown:
    """A way back up, and the parts of the chosen year or month."""

    back: Choice | None
    choices: list[Choice]


@dataclass(frozen=True)
class Span:
    """The times that a list is limited to; `days` are its bounds where they are plain dates."""

    start: datetime | None = None
    end: datetime | None = None
    days: tuple[date, date] | None = None

    def __bool__(self) -> bool:
        return self.start is not None or self.end is not None

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> Span:
        """Read dates or times from a query string. Raises ValueError."""
        texts = [parameters.get(name, "") for name in PARAMETERS]
        start, end = map(_moment, texts)
        first, last = (
            parse_date(text) if len(text) == len("2026-01-31") else None for text in texts
        )
        return cls(start, end, (first, last) if first and last else None)

    @property
    def conditions(self) -> dict[str, datetime]:
        """The conditions on a queryset."""
        bounds = {FROM: self.start, BEFORE: self.end}
        return {name: bound for name, bound in bounds.items() if bound is not None}


def _moment(text: str) -> datetime | None:
    if not text:
        return None
    moment = parse_datetime(text)
    if moment is None or not _EARLIEST < moment.year < _LATEST:
        raise ValueError("not a date or time that can be looked for")
    if settings.USE_TZ and timezone.is_naive(moment):
        return timezone.make_aware(moment)
    if not settings.USE_TZ and timezone.is_aware(moment):
        return timezone.make_naive(moment)
    return moment


def local_day(moment: datetime) -> date:
    """The day of a stored time in the viewer's time zone."""
    return _local(moment).date()


def _local(moment: datetime) -> datetime:
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment


def drill_down(span: Span, first: date, last: date, link: Link) -> DrillDown:
    """What can be chosen from `span`, where the rows lie between two days."""
    if not span:
        return _top(first, last, link)
    everything = Choice(_("All dates"), link(None, None))
    if span.days is None:
        return DrillDown(everything, [Choice(_text(span))])
    start, end = span.days
    if end == start + timedelta(days=1):
        month = date(start.year, start.month, 1)
        return DrillDown(
            Choice(_month_title(month), link(month, _next_month(month))),
            [Choice(_day_title(start))],
        )
    if start.day == 1 and end == _next_month(start):
        year = date(start.year, 1, 1)
        return DrillDown(
            Choice(str(start.year), link(year, _next_year(year))),
            list(_days(start, first, last, link)),
        )
    if (start.month, start.day) == (1, 1) and end == _next_year(start):
        return DrillDown(everything, list(_months(start, first, last, link)))
    return DrillDown(everything, [Choice(_text(span))])


def _top(first: date, last: date, link: Link) -> DrillDown:
    """Years, or as Django does it, months or days if all rows share the year or month."""
    if first.year != last.year:
        years = [date(number, 1, 1) for number in range(first.year, last.year + 1)]
        choices = [Choice(str(year.year), link(year, _next_year(year))) for year in years]
        return DrillDown(None, choices)
    if first.month != last.month:
        return DrillDown(None, list(_months(first, first, last, link)))
    return DrillDown(None, list(_days(first, first, last, link)))


def _months(year: date, first: date, last: date, link: Link) -> Iterator[Choice]:
    for number in range(1, 13):
        month = date(year.year, number, 1)
        if first < _next_month(month) and month <= last:
            yield Choice(_month_title(month), link(month, _next_month(month)))


def _days(month: date, first: date, last: date, link: Link) -> Iterator[Choice]:
    day = max(date(month.year, month.month, 1), first)
    while day < _next_month(month) and day <= last:
        following = day + timedelta(days=1)
        yield Choice(_day_title(day), link(day, following))
        day = following


def _next_month(day: date) -> date:
    return (date(day.year, day.month, 1) + timedelta(days=32)).replace(day=1)


def _next_year(day: date) -> date:
    return date(day.year + 1, 1, 1)


def _month_title(month: date) -> str:
    return capfirst(formats.date_format(month, "YEAR_MONTH_FORMAT"))


def _day_title(day: date) -> str:
    return capfirst(formats.date_format(day, "MONTH_DAY_FORMAT"))


def _text(span: Span) -> str:
    """A range that is no day, month or year, such as a link from elsewhere may ask for."""
    bounds = [
        f"{_local(bound):%Y-%m-%d %H:%M}" if bound else "…" for bound in (span.start, span.end)
    ]
    return " – ".join(bounds)  # noqa: RUF001
