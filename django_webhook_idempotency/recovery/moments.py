"""Times of a provider are aware, and the columns hold them as USE_TZ says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import overload

from django.conf import settings
from django.utils import timezone


@overload
def stored(moment: datetime) -> datetime: ...
@overload
def stored(moment: None) -> None: ...
def stored(moment: datetime | None) -> datetime | None:
    """An aware time as a column takes it."""
    if moment is None or settings.USE_TZ or timezone.is_naive(moment):
        return moment
    return timezone.make_naive(moment)


@overload
def aware(moment: datetime) -> datetime: ...
@overload
def aware(moment: None) -> None: ...
def aware(moment: datetime | None) -> datetime | None:
    """A time from a column or a command line, aware and in UTC."""
    if moment is None:
        return None
    return (timezone.make_aware(moment) if timezone.is_naive(moment) else moment).astimezone(UTC)
