"""Wake who waits for its turn: the event whose predecessor has just ended."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from django.db import DatabaseError
from django.db.models import F
from django.utils import timezone

from .. import ledger
from ..enums import EventStatus
from ..models import WebhookEvent
from .engines import tell
from .places import Place, undone
from .runs import retried

logger = logging.getLogger("django_webhook_idempotency")

#: Seconds to wait for SQLite's one lock.
LOCK_WAIT = 1.0


def call_next(key: str, using: str) -> None:
    """Wake the event whose turn it is, if it waits for that. Never raises: it looks now and then.

    One that waits for its own retry is not woken.
    """
    try:
        turn = undone(key, using).order_by("event_id").first()
        if turn is not None and turn.waiting:
            call(turn.event_id, using)
    except DatabaseError as error:
        logger.warning("webhook waiting for its turn not woken: %s", type(error).__name__)


def look_again(places: Iterable[Place]) -> None:
    """Let an event that was just put off run at once if its turn has come in the meantime.

    Who ended then may not have seen yet that it waits. Never raises, as `call_next`.
    """
    try:
        free = [place for place in places if not place.locked and place.is_free]
        if free:
            call(free[0].event.pk, free[0].using)
    except DatabaseError as error:
        logger.warning("webhook waiting for its turn not woken: %s", type(error).__name__)


def call(pk: int, using: str) -> None:
    """Let an event run now, unless it does; before all that came after it.

    Never waits for somebody who locks it.
    """
    events = WebhookEvent.objects.using(using).filter(pk=pk, lane__isnull=False)
    idle = events.exclude(status=EventStatus.PROCESSING)
    with ledger.bounded_lock_wait(using, LOCK_WAIT), ledger.own_transaction(using):
        if WebhookEvent.objects.using(using).lock(pk) is None:
            return  # somebody runs it, or it is gone
        woken = idle.update(next_attempt_at=F("received_at"), enqueued_at=timezone.now())
    if woken and not tell(pk):
        retried(partial(events.update, enqueued_at=None))
