"""One remembered event, as another table or a file has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from datetime import time as clock
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from ..exceptions import WebhookError


class AdoptError(WebhookError):
    """The source cannot be read as it was described."""


class BadRow(ValueError):
    """One row says too little, or nothing that can be understood. The text quotes none of it."""


@dataclass(frozen=True)
class Row:
    """An event that was processed elsewhere. `moment` is when; None if that is not known."""

    place: str
    event_id: str
    event_type: str
    moment: datetime | None
    scope: str = ""
    url_scope: str = ""


@dataclass(frozen=True)
class Bad:
    """A row that cannot be adopted: where it stands, and why, without anything of it."""

    place: str
    why: str


@dataclass(frozen=True)
class Scopes:
    """What tells equal ids apart: the same for every row, or read from a column of each.

    `scope` is the provider's own, `url_scope` the one in the URL of our endpoint. With `needs_own`,
    a row whose column of the provider's own is blank says too little.
    """

    scope: str = ""
    scope_column: str = ""
    url_scope: str = ""
    url_scope_column: str = ""
    needs_own: bool = False

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return [name for name in (self.scope_column, self.url_scope_column) if name]

    def of(self, read: Callable[[str], Any]) -> tuple[str, str]:
        """Both scopes of a row whose cells `read` gives by column. Raises BadRow."""
        own, url = self.scope, self.url_scope
        if self.scope_column:
            own = text_of(read(self.scope_column), "scope")
            if not own and self.needs_own:
                raise BadRow("blank scope")
        if self.url_scope_column:
            url = text_of(read(self.url_scope_column), "scope")
        return own, url


def text_of(value: Any, what: str = "text") -> str:
    """A cell as text, without what a column of fixed length adds.

    A binary column holds UTF-8. Raises BadRow if it does not; `what` is what it should hold.
    """
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            value = bytes(value).decode().rstrip("\0")
        except UnicodeDecodeError:
            raise BadRow(f"unreadable {what}") from None
    return str(value).strip()


def id_of(value: Any) -> str:
    """A cell that holds an event's id. Raises BadRow for a blank or an unreadable one."""
    found = text_of(value, "id")
    if not found:
        raise BadRow("blank id")
    return found


def moment_of(value: Any, zone: tzinfo = UTC) -> datetime | None:
    """A cell that holds a time: ISO, or Unix seconds. One in the future is now; a blank one None.

    `zone` is that of times which do not say theirs. Raises BadRow.
    """
    if text_of(value, "time") == "":
        return None
    try:
        moment = _read(value)
        if timezone.is_naive(moment):
            moment = moment.replace(tzinfo=zone)
        moment = min(moment, datetime.now(UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError, ArithmeticError):
        raise BadRow("unreadable time") from None
    return moment if settings.USE_TZ else timezone.make_naive(moment)


def _read(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime.combine(value, clock.min)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return datetime.fromtimestamp(float(value), UTC)
    text = text_of(value)
    if text.replace(".", "", 1).isdecimal() and text.isascii():
        return datetime.fromtimestamp(float(text), UTC)
    moment = parse_datetime(text)
    if moment is None:
        day = parse_date(text)
        if day is None:
            raise ValueError("no time")
        moment = datetime.combine(day, clock.min)
    return moment
