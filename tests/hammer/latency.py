"""How long things took: acknowledgements, waits in the queue, handlers."""

from __future__ import annotations

import time
from statistics import quantiles
from typing import Any

from django_webhook_idempotency.models import WebhookEvent

from .journal import Journal
from .provider import Answer, Campaign, Event


class Timed(Campaign):
    """A campaign that keeps the seconds of each acknowledgement, by the event's type."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.seconds: dict[str, list[float]] = {}

    @property
    def all_seconds(self) -> list[float]:
        return [each for values in self.seconds.values() for each in values]

    def _done(self, tried: int, event: Event, answer: Answer) -> None:
        if answer.accepted:
            self.seconds.setdefault(event.type, []).append(answer.seconds)
        super()._done(tried, event, answer)


def milliseconds(values: list[float]) -> dict[str, float]:
    """The middle and the slow end."""
    cuts = quantiles(values, n=100)
    return {"p50": round(cuts[49] * 1000, 1), "p99": round(cuts[98] * 1000, 1)}


def queue_waits(journal: Journal) -> list[float]:
    """Seconds from each event's receipt to its handler."""
    received = dict(WebhookEvent.objects.values_list("event_id", "received_at"))
    offset = time.time() - time.monotonic()
    first = {line.event: line.at for line in reversed(journal.lines("enter"))}
    return [at + offset - received[event].timestamp() for event, at in first.items()]


def handler_times(journal: Journal, ids: set[str]) -> list[float]:
    """Seconds that the handlers of these events ran."""
    entered = {line.event: line.at for line in journal.lines("enter")}
    left = {line.event: line.at for line in journal.lines("leave")}
    return [left[each] - entered[each] for each in ids]
