"""Claim an event for a worker: one short transaction, committed before the handler starts."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.models import F
from django.utils import timezone

from .. import ledger
from ..enums import EventStatus
from ..exceptions import StoreUnavailable
from ..models import WebhookEvent
from ..providers import Provider, configured_provider
from ..querysets import WebhookEventQuerySet
from ..stores import LeaseStore, lease_store

#: The oldest due events of a source that are looked at together to find one which nobody locks,
#: and how often: a redelivery in a request locks an event for as long as its handlers run.
CANDIDATES = 16
LOOKS = 20


@dataclass
class Claim:
    """An event that its holder may run, and the token that proves it.

    `twin` is an older event with the same content. `abandoned` says that the holder before never
    came back: it was killed, or its lease ran out. `announced` says that a message went out for
    this attempt.
    """

    event: WebhookEvent
    token: str
    twin: int | None = None
    abandoned: bool = False
    announced: bool = True


def claim_due(lane: str, scope: str) -> Claim | None:
    """Claim the oldest due event of a source, passing over those that somebody else locks.

    Raises StoreUnavailable, or the database's own error.
    """
    now = timezone.now()
    due = WebhookEvent.objects.using(ledger.alias()).due(now).filter(lane=lane, scope=scope)
    oldest = due.order_by("next_attempt_at", "pk").values_list("pk", flat=True)
    for look in range(LOOKS):
        candidates = list(oldest[look * CANDIDATES : (look + 1) * CANDIDATES])
        claim = _claim_one(candidates, lease_of(lane), now) if candidates else None
        if claim is not None or len(candidates) < CANDIDATES:
            return claim
    return None


def claim_event(pk: int, lane: str) -> Claim | None:
    """Claim one event, if it is due and nobody locks it.

    Raises StoreUnavailable, or the database's own error.
    """
    return _claim_one([pk], lease_of(lane), timezone.now())


def lease_of(slug: str) -> timedelta:
    """How long a claim on a provider's events outlives its worker."""
    try:
        return configured_provider(slug).lease
    except ImproperlyConfigured:
        return Provider.lease


def release(store: LeaseStore, key: str, token: str) -> None:
    """Give a lease back; a store that fails here only costs the time until it runs out."""
    with suppress(StoreUnavailable):
        store.release(key, token)


def _claim_one(candidates: list[int], lease: timedelta, now: datetime) -> Claim | None:
    """Claim one of the candidates, if there is one that nobody locks."""
    using, token, store = ledger.alias(), ledger.new_token(), lease_store()
    taken = ExitStack()
    with taken:
        with ledger.own_transaction(using):
            event = _lock_one(WebhookEvent.objects.using(using), candidates, now)
            if event is None:
                return None
            row = WebhookEvent.objects.using(using).filter(pk=event.pk)
            if not store.acquire(event.dedupe_key, token, lease):
                # Somebody in a request holds it, and renews it where the row doesn't show.
                row.update(next_attempt_at=timezone.now() + lease / 2)
                return None
            taken.callback(release, store, event.dedupe_key, token)
            changes = {
                "attempts": event.attempts + 1,
                **ledger.leased(token, lease, timezone.now()),
            }
            row.update(**changes)
        taken.pop_all()
    abandoned = event.status == EventStatus.PROCESSING
    told_at, due_at = event.enqueued_at, event.next_attempt_at
    announced = told_at is not None and due_at is not None and told_at >= due_at
    for name, value in changes.items():
        setattr(event, name, value)
    return Claim(event, token, abandoned=abandoned, announced=announced)


def _lock_one(
    events: WebhookEventQuerySet, candidates: list[int], now: datetime
) -> WebhookEvent | None:
    """Lock one of the candidates that is still due.

    By primary key: a range would lock the gaps between the rows on MariaDB, and with an order
    every candidate.
    """
    features = connections[events.db].features
    if not features.has_select_for_update:
        # SQLite has one lock, for writing; the empty update takes it before a row is read.
        events.filter(pk__in=candidates[:1]).update(attempts=F("attempts"))
        return events.due(now).filter(pk__in=candidates).order_by("next_attempt_at").first()
    skip = features.has_select_for_update_skip_locked
    locked = events.select_for_update(skip_locked=skip)
    if features.has_select_for_no_key_update:
        locked = events.select_for_update(skip_locked=skip, no_key=True)
    found = locked.due(now).filter(pk__in=candidates).order_by()[:1]
    return next(iter(found), None)
