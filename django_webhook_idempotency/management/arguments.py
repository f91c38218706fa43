"""What the commands read from their command line."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import datetime, timedelta
from datetime import time as clock
from zoneinfo import ZoneInfo

from django.conf import settings
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def point_in_time(text: str) -> datetime:
    """Read an ISO date or time, or an age such as `90d`."""
    age = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    try:
        if age:
            return timezone.now() - timedelta(**{_UNITS[age[2]]: int(age[1])})
        date = parse_date(text)
        moment = datetime.combine(date, clock.min) if date else parse_datetime(text)
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise ArgumentTypeError(f"{text!r} is neither an ISO date or time nor an age such as 90d")
    if settings.USE_TZ and timezone.is_naive(moment):
        return timezone.make_aware(moment)
    if not settings.USE_TZ and timezone.is_aware(moment):
        return timezone.make_naive(moment)
    return moment


def positive(text: str) -> int:
    """Read a whole number from one up."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ArgumentTypeError(f"{text!r} is not a whole number, one or more")
    return int(text)


def seconds(text: str) -> float:
    """Read a number of seconds from zero up."""
    if not re.fullmatch(r"\d{1,9}(\.\d+)?", text, re.ASCII):
        raise ArgumentTypeError(f"{text!r} is not a number of seconds, zero or more")
    return float(text)


def natural(text: str) -> int:
    """Read a whole number from zero up."""
    if not (text.isascii() and text.isdigit()):
        raise ArgumentTypeError(f"{text!r} is not a whole number, zero or more")
    return int(text)


def duration(text: str) -> timedelta:
    """Read a time such as `90s`, `5m` or `12h`; a bare number is seconds."""
    found = re.fullmatch(r"(\d{1,6})([smhdw]?)", text, re.ASCII)
    if not found or not int(found[1]):
        raise ArgumentTypeError(f"{text!r} is not a time such as 90s, 5m or 12h")
    return timedelta(**{_UNITS[found[2] or "s"]: int(found[1])})


def positive_number(text: str) -> float:
    """Read a number above zero."""
    if not (re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII) and float(text) > 0):
        raise ArgumentTypeError(f"{text!r} is not a number above zero")
    return float(text)


def time_zone(text: str) -> ZoneInfo:
    """Read the name of a time zone."""
    try:
        return ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise ArgumentTypeError(f"{text!r} is no time zone that is known here") from None


def delimiter(text: str) -> str:
    """Read what stands between the cells of a line."""
    if len(text) != 1 or text in '\r\n\0"':
        raise ArgumentTypeError(f"{text!r} is not one character, or cannot stand between cells")
    return text


def type_pattern(text: str) -> str:
    """Read an event type, a prefix such as `invoice.*`, or `*`."""
    prefix = text.removesuffix(".*")
    if text != "*" and (not prefix or "*" in prefix):
        raise ArgumentTypeError(f"{text!r} is neither a type nor 'prefix.*' nor '*'")
    return text
