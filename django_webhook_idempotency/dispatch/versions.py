"""How new the state in an event is: read from the event and compared with what was applied."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from ..exceptions import OrderingError

#: What the column of an ordering key's version has room for.
MAX_VERSION = 255

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<time>[0-9]{2}:[0-9]{2}(:[0-9]{2})?)"
    r"([.,](?P<fraction>[0-9]+))? ?(?P<zone>[Zz]|[+-][0-9]{2}(:?[0-9]{2})?)?"
)
_EPOCH = datetime(1970, 1, 1)
_AWARE_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Version:
    """A number, a date, a time or a text; `stored` is the JSON that it is kept as.

    Only versions of one kind have an order: 9 is older than 10, but "9" as a text would not be.
    """

    stored: str
    kind: str = field(compare=False)
    order: Any = field(compare=False, repr=False)

    @classmethod
    def of(cls, value: Any) -> Version:
        """The version that a value is. Raises OrderingError."""
        if isinstance(value, date):  # a datetime is one too
            value = value.isoformat()
        elif isinstance(value, Decimal) and value.is_finite():
            value = format(value, "f")
        kind, order = _order_of(value)
        stored = json.dumps(value)
        if len(stored) > MAX_VERSION:
            raise OrderingError(f"The version takes more than {MAX_VERSION} characters.")
        return cls(stored, kind, order)

    @classmethod
    def load(cls, stored: str) -> Version | None:
        """A version as it was stored, None if there is none yet."""
        return cls.of(json.loads(stored)) if stored else None

    def is_older_than(self, other: Version) -> bool:
        """Whether the other is newer. Raises OrderingError for two that have no order."""
        if self.kind != other.kind:
            raise OrderingError(
                f"The version is a {self.kind}, and the newest that was applied is a {other.kind}: "
                "nobody can say which is newer."
            )
        return bool(self.order < other.order)


def _order_of(value: Any) -> tuple[str, Any]:
    """What kind of version a value is, and what to compare of it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = Decimal(repr(value))
        if number.is_finite():
            return "number", number
    if not isinstance(value, str) or not value:
        what = "an empty text" if value == "" else f"of type {type(value).__name__}"
        raise OrderingError(f"The version is {what}; it should be a number, a time or a text.")
    if _NUMBER.fullmatch(value):
        return "number", Decimal(value)
    if (moment := _TIME.fullmatch(value)) is not None:
        return _order_of_time(moment)
    if _DATE.fullmatch(value):
        try:
            return "date", date.fromisoformat(value)
        except ValueError:
            raise OrderingError("The version looks like a date, and is none.") from None
    return "text", value


def _order_of_time(moment: re.Match[str]) -> tuple[str, Any]:
    """A time in seconds, with every digit of its fraction: nanoseconds too have an order."""
    zone = (moment["zone"] or "").upper()
    # A leap second is the one after the 59th, for which Python has no name.
    clock, leaps = re.subn(r":60$", ":59", moment["time"])
    try:
        whole = datetime.fromisoformat(f"{moment['date']}T{clock}{zone}")
    except ValueError:
        # As a text it would have no order with the times before and after it.
        raise OrderingError("The version looks like a time, and is none.") from None
    since = whole - (_AWARE_EPOCH if zone else _EPOCH)
    seconds = Decimal(since.days * 86_400 + since.seconds + leaps)
    seconds += Decimal(f"0.{moment['fraction'] or 0}")
    return ("time" if zone else "time without a zone"), seconds
