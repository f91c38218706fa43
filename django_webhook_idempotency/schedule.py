"""What Celery Beat does for this app, with or without its database scheduler.

Needs no model and no settings, so that the project's celery.py can import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .exceptions import MissingExtra
from .names import PURGE, RECOVER, SWEEP

#: Retries and lost messages wait this long at the most.
SWEEP_EVERY = timedelta(seconds=10)
#: An event that its provider could not deliver is missing for so long at the most, and the grace
#: of its source.
RECOVER_EVERY = timedelta(minutes=10)


@dataclass(frozen=True)
class Periodic:
    """A periodic task: every so often, or daily at a time of Celery's time zone.

    A message that was not taken `expires` seconds after it was sent is thrown away: the next one
    does the same.
    """

    task: str
    description: str
    expires: int
    every: timedelta | None = None
    hour: int = 0
    minute: int = 0

    def __str__(self) -> str:
        if self.every is not None:
            return f"every {self.every.total_seconds():g} seconds"
        return f"daily at {self.hour:02}:{self.minute:02}"


PERIODIC = (
    Periodic(
        SWEEP,
        "Runs again what is due, and sends messages that were lost once more.",
        expires=10,
        every=SWEEP_EVERY,
    ),
    Periodic(
        RECOVER,
        "Asks providers that have a RECOVERY for what did not arrive, and runs what died again.",
        expires=10 * 60,
        every=RECOVER_EVERY,
    ),
    Periodic(
        PURGE,
        "Deletes events, bodies and deliveries that are older than the settings keep them.",
        expires=6 * 60 * 60,
        hour=3,
        minute=17,
    ),
)


def beat_schedule() -> dict[str, dict[str, Any]]:
    """Entries for the `beat_schedule` of a Celery app, by name. Raises MissingExtra.

    Without the database scheduler; `manage.py schedule_webhooks` makes the same entries for it.
    """
    try:
        from celery.schedules import crontab
    except ImportError:
        raise MissingExtra("celery", "beat_schedule()") from None
    return {
        periodic.task: {
            "task": periodic.task,
            "schedule": periodic.every or crontab(periodic.minute, periodic.hour),
            "options": {"expires": periodic.expires},
        }
        for periodic in PERIODIC
    }
