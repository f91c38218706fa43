"""Sending to a queue's server, what must be true when it has drained, and how long it took."""

from __future__ import annotations

import signal

from django.db.models import F

from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.models import WebhookEvent

from .cluster import Cluster
from .latency import Timed
from .ledger_state import effects
from .provider import Event


def waits() -> list[float]:
    """Seconds from each event's receipt to its end."""
    spans = WebhookEvent.objects.annotate(span=F("processed_at") - F("received_at"))
    return [span.total_seconds() for span in spans.values_list("span", flat=True)]


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


class frozen:  # noqa: N801
    """Stop every worker node, so that messages wait in the broker."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __enter__(self) -> None:
        for node in self.cluster.workers:
            node.signal(signal.SIGSTOP)

    def __exit__(self, *error: object) -> None:
        for node in self.cluster.workers:
            node.signal(signal.SIGCONT)
