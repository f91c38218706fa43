"""In the request, under a lease: for handlers whose work no transaction can undo."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError
from django.utils import timezone

from .. import ledger
from ..enums import Outcome
from ..exceptions import StoreUnavailable
from ..models import WebhookEvent
from ..stores import LeaseStore, lease_store
from .claims import Claim, release
from .leased_run import LeasedRun
from .meeting import meet
from .runs import (
    insist,
    patience,
    read_stored,
)
from .work import Result, Work


def deliver_leased(event: WebhookEvent, work: Work) -> Result:
    """Run an event's handlers under a lease, waiting a bounded time for somebody who holds it.

    Raises StoreUnavailable, or the database's own error, when nothing could be claimed, and
    ImproperlyConfigured if a handler has an ordering key.
    """
    refuse_order(work)
    store = lease_store()
    stored: WebhookEvent | None = None
    for _ in patience(work.provider.wait):
        try:
            claim = _claim_new(event, work, store)
            if claim is None:
                stored = ledger.find(event, with_response=work.replay_response)
                if stored is None:
                    continue
                met = meet(event, stored, work)
                if met is not None:
                    return met
                claim = _claimed_already(event, stored, work, store)
                claim = claim or _claim_stored(event, stored, work, store)
        except DatabaseError as error:
            if not ledger.is_passing(error):
                raise
            continue
        except StoreUnavailable:
            # Whether a finished event is finished, the ledger knows without the store.
            stored = ledger.find(event, with_response=work.replay_response)
            met = meet(event, stored, work) if stored is not None else None
            if met is None:
                raise
            return met
        if claim is not None:
            return LeasedRun(claim, work, store).run_all()
    return Result(Outcome.IN_PROGRESS, stored)


def refuse_order(work: Work) -> None:
    """Raise if a handler has an order: no transaction holds its key here, and no turn is kept."""
    for handler in work.handlers:
        if handler.ordering_key is not None:
            raise ImproperlyConfigured(
                f"Handler {handler.name} has an ordering_key, which needs PROCESSING 'queued' "
                "where it, or another handler of the same event, is atomic=False."
            )


def _claim_new(event: WebhookEvent, work: Work, store: LeaseStore) -> Claim | None:
    """Insert the event's row with the lease in it."""
    # The same in a second try, which knows by it what the first has inserted.
    token, lease = event.lease_token or ledger.new_token(), work.provider.lease
    if not store.acquire(event.dedupe_key, token, lease):
        return None
    event.attempts = 1
    event.lane = work.lane
    for name, value in ledger.leased(token, lease, timezone.now()).items():
        setattr(event, name, value)
    won = False
    try:
        events = WebhookEvent.objects.using(ledger.alias())
        with ledger.bounded_lock_wait(events.db, work.provider.wait):
            inserted = events.insert_once(event, find_twin=work.provider.same_body != "allow")
        won = inserted.won
    finally:
        if not won:
            release(store, event.dedupe_key, token)
    return Claim(event, token, inserted.twin) if won else None


def _claimed_already(
    event: WebhookEvent, stored: WebhookEvent, work: Work, store: LeaseStore
) -> Claim | None:
    """The claim that this very delivery has inserted, if the answer to the commit was lost.

    Not where an older event with the same body would have to be refused: which, was lost too.
    """
    token = event.lease_token
    if not token or stored.lease_token != token or work.provider.same_body == "refuse":
        return None
    if not store.acquire(stored.dedupe_key, token, work.provider.lease):
        return None
    events = WebhookEvent.objects.using(ledger.alias())
    if not events.held_by(stored.pk, token).exists():
        # Somebody else was quicker, in the moment in which nobody had the lease.
        release(store, stored.dedupe_key, token)
        return None
    event.pk = stored.pk
    return Claim(event, token)


def _claim_stored(
    event: WebhookEvent, stored: WebhookEvent, work: Work, store: LeaseStore
) -> Claim | None:
    """Take over an unfinished event whose lease is free."""
    token, lease = ledger.new_token(), work.provider.lease
    if not store.acquire(stored.dedupe_key, token, lease):
        return None
    taken = False
    try:
        taken = ledger.take(stored, token, lease, exclusive=store.exclusive)
    finally:
        if not taken:
            release(store, stored.dedupe_key, token)
    if not taken:
        return None
    events = WebhookEvent.objects.using(ledger.alias())
    whole = insist(ledger.alias(), lambda: events.get(pk=stored.pk))
    work.prepare(read_stored(whole, event, work.provider))
    return Claim(whole, token)
