"""Sending to a queue's server, what must be true when it has drained, and how long it took."""

from __future__ import annotations

from statistics import quantiles
from typing import Any

from django.db.models import F

from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.models import WebhookEvent

from .cluster import Cluster
from .ledger_state import effects
from .provider import Answer, Campaign, Event


class Timed(Campaign):
    """A campaign that keeps the seconds of each acknowledgement."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.seconds: list[float] = []

    def _done(self, tried: int, event: Event, answer: Answer) -> None:
        self.seconds.append(answer.seconds)
        super()._done(tried, event, answer)


def percentiles(values: list[float]) -> dict[str, float]:
    """The middle and the slow end, in milliseconds."""
    cuts = quantiles(values, n=100)
    return {"p50": round(cuts[49] * 1000, 1), "p99": round(cuts[98] * 1000, 1)}


def waits() -> list[float]:
    """Seconds from each event's receipt to its end."""
    spans = WebhookEvent.objects.annotate(span=F("processed_at") - F("received_at"))
    return [span.total_seconds() for span in spans.values_list("span", flat=True)]


def handler_times(cluster: Cluster, ids: set[str]) -> list[float]:
    entered = {line.event: line.at for line in cluster.journal.lines("enter")}
    left = {line.event: line.at for line in cluster.journal.lines("leave")}
    return [left[each] - entered[each] for each in ids]


def accept(cluster: Cluster, sent: list[Event], connections: int = 16) -> Timed:
    """Send each event until it is accepted."""
    campaign = Timed(cluster.server.port, sent, connections=connections)
    tally = campaign.run()
    assert tally.strange == []
    assert tally.given_up == []
    assert set(tally.accepted) == {event.id for event in sent}
    return campaign


def assert_once(cluster: Cluster, sent: list[Event]) -> None:
    """Each event is processed and had its one effect; no handler ran beside itself."""
    ids = {event.id for event in sent}
    assert dict(effects()) == dict.fromkeys(ids, 1)
    statuses = WebhookEvent.objects.filter(event_id__in=ids).values_list("status", flat=True)
    assert list(statuses) == [EventStatus.PROCESSED] * len(ids)
    assert {line.event for line in cluster.journal.lines("overlap")} & ids == set()


def runs(cluster: Cluster, sent: list[Event]) -> int:
    ids = {event.id for event in sent}
    return sum(line.event in ids for line in cluster.journal.lines("enter"))
