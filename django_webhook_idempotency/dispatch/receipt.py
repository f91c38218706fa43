"""Acknowledge first: store the event and its delivery, commit, answer, and tell the queue."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from functools import partial

from django.db import DatabaseError, transaction
from django.utils import timezone

from .. import ledger
from ..enums import EventStatus, Outcome
from ..exceptions import StoreUnavailable
from ..models import Replay, WebhookEvent
from .calling import look_again
from .engines import tell
from .meeting import meet, meet_twin
from .places import Place, end_rest, line_up
from .readings import key_of
from .runs import patience
from .work import Result, Work

#: A redelivery lets these run again at once.
REARMED = frozenset({EventStatus.FAILED, EventStatus.DEAD})


class QueueFull(StoreUnavailable):
    """A provider has as many unfinished events as MAX_PENDING allows."""


def deliver_queued(event: WebhookEvent, work: Work) -> Result:
    """Store an event for the workers, in one short transaction that waits for no handler.

    A copy of it that failed runs again at once, and its attempts count anew. Raises
    QueueFull, or the database's own error, and then nothing is written.
    """
    problem: DatabaseError | None = None
    stored: WebhookEvent | None = None
    for _ in patience(work.provider.wait):
        try:
            result = store(event, work)
            if result is not None:
                return result
            stored = ledger.find(event)
            if stored is not None:
                result = meet(event, stored, work) or own(event, stored, work)
                result = result or rearm(stored, work, event.received_at)
                if result is not None:
                    return result
        except DatabaseError as error:
            if not ledger.is_passing(error):
                raise
            problem = error
    if problem is not None:
        raise problem
    return Result(Outcome.IN_PROGRESS, stored)


def store(event: WebhookEvent, work: Work) -> Result | None:
    """Insert the event's row and the delivery's; None if the key is taken."""
    using, provider = ledger.alias(), work.provider
    event.status = EventStatus.PENDING
    event.lane = work.lane
    event.next_attempt_at = event.enqueued_at = event.received_at
    places = places_of(event, work)
    waits = 0 < len(places) == len(work.handlers) and all(place.count_ahead() for place in places)
    if waits:
        event.next_attempt_at = event.received_at + min(place.wait for place in places)
    events = WebhookEvent.objects.using(using)
    with (
        ledger.bounded_lock_wait(using, provider.wait),
        ledger.own_transaction(using),
    ):
        inserted = events.insert_once(event, find_twin=provider.same_body != "allow")
        if not inserted.won:
            return None
        if inserted.twin is not None:
            refused = meet_twin(inserted.twin, work)
            if refused is not None:
                transaction.set_rollback(True, using=using)
                return refused
        refuse_overflow(work)
        line_up(event, [place.key for place in places], using, waiting=waits)
        news = partial(look_again, places) if waits else partial(tell, event.pk)
        transaction.on_commit(news, using=using)
        return work.record(Result(Outcome.ACCEPTED, event), using)


def places_of(event: WebhookEvent, work: Work) -> list[Place]:
    """The places of an event, one for each handler that has an order.

    One that cannot be read stops nothing here: the event is stored, and its run fails visibly.
    """
    places = []
    for handler in work.handlers:
        with suppress(Exception):
            key = key_of(event, handler)
            if key is not None:
                places.append(Place(event, handler, key, ledger.alias()))
    return places


def refuse_overflow(work: Work) -> None:
    """Raise QueueFull if the row just inserted is one too many. Looks at MAX_PENDING rows."""
    limit = work.provider.max_pending
    if limit is None:
        return
    unfinished = WebhookEvent.objects.using(ledger.alias()).filter(lane=work.lane)
    if unfinished.order_by()[limit : limit + 1].values_list("pk", flat=True):
        raise QueueFull(
            f"Provider {work.provider.key!r} has {limit} unfinished events, its MAX_PENDING."
        )


def own(event: WebhookEvent, stored: WebhookEvent, work: Work) -> Result | None:
    """What this very delivery has stored, if the answer to its commit was lost; else None."""
    if stored.enqueued_at != event.received_at or stored.status != EventStatus.PENDING:
        return None
    tell(stored.pk)
    result = Result(Outcome.ACCEPTED, stored, recorded=True)
    work.settle(result)
    return result


def attempts_before(event: WebhookEvent) -> int:
    """The attempts that a redelivery forgives.

    One more if the last thing that happened to the event was that a single handler was to run
    again, and did not: the redelivery is for all of them.
    """
    if not event.forgiven:
        return event.attempts
    alone = Replay.objects.using(ledger.alias()).filter(event=event, after=event.attempts)
    return event.attempts + alone.exclude(handler="").exists()


def rearm(stored: WebhookEvent, work: Work, received_at: datetime) -> Result | None:
    """Let a failed event run again now; a copy of one that is stored or running is a duplicate.

    `received_at` is the time of this delivery. None while somebody else locks it, who may run its
    handlers in a request.
    """
    if stored.status not in REARMED and stored.lane is not None:
        return Result(Outcome.DUPLICATE, stored)
    using, now = ledger.alias(), timezone.now()
    event = WebhookEvent.objects.using(using).filter(pk=stored.pk)
    idle = event.filter(status__in=REARMED)
    if stored.lane is None:
        # It stems from a view that only a request could run, so no worker would ever see it.
        idle = event.filter(lane__isnull=True).free(now)
    with ledger.bounded_lock_wait(using, work.provider.wait), ledger.own_transaction(using):
        locked = WebhookEvent.objects.using(using).lock(stored.pk)
        if locked is None:
            return None
        past = attempts_before(locked)
        if idle.update(
            status=EventStatus.PENDING,
            attempts=past,
            forgiven=past,
            lane=work.lane,
            view=work.view or "",
            next_attempt_at=received_at,
            enqueued_at=received_at,
        ):
            if work.is_ordered:
                end_rest(stored, using)
            transaction.on_commit(partial(tell, stored.pk), using=using)
            return work.record(Result(Outcome.ACCEPTED, stored), using)
    return Result(Outcome.DUPLICATE, stored)
