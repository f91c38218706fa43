"""Ask an API with patience for what passes, and none against a pause that it asks for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from .base import RateLimited, SourceError, SourceRefused

Answer = TypeVar("Answer")

#: Seconds to wait for a connection, and for each piece of an answer.
TIMEOUT = 20.0
#: Seconds before the second try and the third.
PAUSES = (0.5, 2.0)
#: The pause where an API asks for one and does not say how long.
UNSAID_PAUSE = 30.0


def patiently(ask: Callable[[], Answer]) -> Answer:
    """Ask up to three times while what stands in the way may pass.

    The clients' own retries are off: they would sit out a Retry-After of an hour, or ignore it.
    """
    for pause in PAUSES:
        try:
            return ask()
        except (RateLimited, SourceRefused):
            raise
        except SourceError:
            time.sleep(pause)
    return ask()


def pause_asked(retry_after: object) -> float:
    """The seconds that a Retry-After asks for: a number, or a date."""
    text = str(retry_after).strip()
    try:
        seconds = float(text)
    except ValueError:
        moment = http_date(text)
        if moment is None:
            return UNSAID_PAUSE
        seconds = (moment - datetime.now(UTC)).total_seconds()
    return max(seconds, 0.0) if math.isfinite(seconds) else UNSAID_PAUSE


def http_date(text: str) -> datetime | None:
    """The time in a header such as Date, None if it is none."""
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
