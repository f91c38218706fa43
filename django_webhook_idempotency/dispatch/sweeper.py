"""Send messages again that were lost, and those of retries and takeovers that are due.

Only where the engine sends messages at all: the workers of the others look by themselves.
"""

from __future__ import annotations

import time
from collections import deque
from datetime import datetime, timedelta

from django.db.models import (
    DateTimeField,
    DurationField,
    ExpressionWrapper,
    F,
    Q,
    QuerySet,
    Value,
)
from django.utils import timezone

from .. import ledger
from ..models import WebhookEvent
from .engines import queue_engine, tell
from .silence import watch
from .sources import Source, sources

#: Messages that one sweep sends at the most, and those of one source before the next has its turn.
LIMIT = 5000
SHARE = 100
#: Seconds after which a sweep ends, with whatever is left for the next.
MAX_SECONDS = 20.0
#: How long a message may be on its way before it counts as lost. It counts from the last message
#: to the event, and doubles with each: a queue that is only long is not flooded.
MESSAGE_TIME = timedelta(seconds=60)
#: The longest time between two messages to one event.
LONGEST_SILENCE = timedelta(minutes=10)


def sweep(limit: int = LIMIT, max_seconds: float = MAX_SECONDS) -> int:
    """Enqueue what is due and has no message on its way; return how many were enqueued.

    Two at once send no message twice. Ends at the first message that the queue does not take.
    Tells of silent sources too, whatever the engine.
    """
    watch()
    if not queue_engine().sends_messages:
        return 0
    started, sent = time.monotonic(), 0
    turns = deque(source for source in sources() if source.due_at <= timezone.now())
    while turns:
        source = turns.popleft()
        found = list(_silent(source)[:SHARE])
        for pk, told_at in found:
            if sent >= limit or time.monotonic() - started > max_seconds:
                return sent
            now = timezone.now()
            if not _mark(pk, told_at, now):
                continue
            if not tell(pk):
                _mark(pk, now, told_at)
                return sent
            sent += 1
        if len(found) == SHARE:
            turns.append(source)
    return sent


def _silent(source: Source) -> QuerySet[WebhookEvent, tuple[int, datetime | None]]:
    """A source's due events without a message on its way, oldest first."""
    now = timezone.now()
    last, due = F("enqueued_at"), F("next_attempt_at")
    lost = Q(enqueued_at__lte=now - MESSAGE_TIME, silence__gte=F("patience"))
    lost |= Q(enqueued_at__lte=now - LONGEST_SILENCE)
    return (
        WebhookEvent.objects.using(ledger.alias())
        .due(now)
        .filter(lane=source.lane, scope=source.scope)
        .annotate(
            silence=ExpressionWrapper(
                Value(now, DateTimeField()) - last, output_field=DurationField()
            ),
            patience=ExpressionWrapper(last - due, output_field=DurationField()),
        )
        .filter(Q(enqueued_at__isnull=True) | Q(enqueued_at__lt=due) | lost)
        .order_by("next_attempt_at")
        .values_list("pk", "enqueued_at")
    )


def _mark(pk: int, told_at: datetime | None, now: datetime | None) -> bool:
    """Note when a message went out; False if another sweeper was quicker."""
    events = WebhookEvent.objects.using(ledger.alias()).filter(pk=pk, enqueued_at=told_at)
    if told_at is None:
        events = WebhookEvent.objects.using(ledger.alias()).filter(pk=pk, enqueued_at__isnull=True)
    return events.update(enqueued_at=now) == 1
