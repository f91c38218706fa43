"""What the deliveries of the events on a page say, read with one bounded statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from ..models import WebhookDelivery, WebhookEvent
from .sources import Source, source_of

#: Deliveries read for one page. Only a flood of copies has more; then there is an "at least".
READ_LIMIT = 5_000
_ATTRIBUTE = "_admin_summary"


@dataclass
class Summary:
    """An event's deliveries in a few figures; None where its deliveries weren't kept."""

    source: Source
    seen: int = 0
    at_least: bool = False
    first_duration: timedelta | None = None
    retry_number: int | None = None
    retry_reason: str = ""

    @property
    def copies(self) -> int | None:
        """Deliveries after the first."""
        return self.seen - 1 if self.seen else None


def summarize(events: Sequence[WebhookEvent]) -> None:
    """Put a summary on each event of a page; read it with `summary_of`."""
    sources = {slug: source_of(slug) for slug in {event.provider for event in events}}
    summaries = {event.pk: Summary(sources[event.provider]) for event in events}
    received = {event.pk: event.received_at for event in events}
    deliveries = WebhookDelivery.objects.filter(event__in=list(summaries)).values_list(
        "event_id", "pk", "received_at", "duration", "retry_number", "retry_reason"
    )
    rows = list(deliveries[:READ_LIMIT])
    for event_id, _, received_at, duration, number, reason in sorted(rows):
        summary = summaries[event_id]
        summary.seen += 1
        summary.at_least = len(rows) == READ_LIMIT
        if received_at == received[event_id]:
            summary.first_duration = duration
        if number is not None or reason:
            summary.retry_number, summary.retry_reason = number, reason
    for event in events:
        setattr(event, _ATTRIBUTE, summaries[event.pk])


def summary_of(event: WebhookEvent) -> Summary:
    """The summary that `summarize` put on an event; without one, only its provider."""
    found = getattr(event, _ATTRIBUTE, None)
    return found if isinstance(found, Summary) else Summary(source_of(event.provider))
