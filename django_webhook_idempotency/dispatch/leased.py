"""In the request, under a lease: for handlers whose work no transaction can undo."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError
from django.utils import timezone

from .. import ledger
from ..enums import EventStatus, Outcome
from ..exceptions import LeaseLost, StoreUnavailable
from ..handlers import Handler
from ..models import WebhookEvent
from ..stores import LeaseStore, lease_store
from .claims import Claim, release
from .failures import is_unproven
from .heartbeat import heartbeat
from .meeting import meet, meet_twin
from .runs import (
    Run,
    WriterBusy,
    call,
    insist,
    patience,
    read_stored,
    retried,
    worse,
)
from .steps import Steps
from .transitions import changes_after, changes_done, remaining
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


class LeasedRun:
    """The handlers of a claimed event, each finished behind the fence of the lease's token."""

    def __init__(self, claim: Claim, work: Work, store: LeaseStore) -> None:
        self.event = claim.event
        self.token = claim.token
        self.twin = claim.twin
        self.work = work
        self.store = store
        self.using = ledger.alias()

    def run_all(self) -> Result:
        """Run what is left of the event, and write how it ended if the lease is still ours."""
        event = self.event
        error: Exception | None = None
        value: Any = None
        handlers = self.work.handlers
        try:
            refused = meet_twin(self.twin, self.work) if self.twin is not None else None
            if refused is not None:
                self.forget()
                return refused
            if event.attempts > 1:
                handlers = remaining(event, handlers)
            with heartbeat(self.store, event.dedupe_key, self.token, self.work.provider.lease):
                for handler in handlers:
                    try:
                        if handler is not handlers[0]:
                            self.look()
                        value = self.call(handler)
                    except LeaseLost:
                        raise
                    except Exception as raised:
                        error = raised if len(handlers) == 1 else worse(error, raised)
            return self.end(value if len(self.work.handlers) == 1 else None, error)
        except LeaseLost:
            return self.overtaken()
        finally:
            release(self.store, event.dedupe_key, self.token)

    def call(self, handler: Handler) -> Any:
        """Run one handler and store its run; an atomic one commits together with its run."""
        run = Run(handler, self.event.attempts)
        self.work.report.ran = True
        try:
            if handler.atomic:
                return retried(lambda: self.call_fenced(run))
            with self.steps_of(handler):
                value = call(handler, self.event)
        except (LeaseLost, WriterBusy):
            raise
        except Exception as error:
            if not is_unproven(error, self.work):
                self.store_run(run, error)
            raise
        self.store_run(run)
        return value

    def steps_of(self, handler: Handler) -> Steps:
        """What the steps of a handler that runs now are remembered with."""
        return Steps(
            self.event, handler, self.token, self.store, self.work.provider.lease, self.using
        )

    def call_fenced(self, run: Run) -> Any:
        """Run an atomic handler; what it wrote is undone if the lease is not ours by then."""
        with ledger.own_transaction(self.using):
            with ledger.unbroken(self.using):
                value = call(run.handler, self.event)
            self.fence()
            run.row(self.event).save(force_insert=True, using=self.using)
        return value

    def store_run(self, run: Run, error: Exception | None = None) -> None:
        """Store how a run ended. What it did outside the database can't be undone any more."""
        row = run.row(self.event, error)
        insist(self.using, lambda: row.save(force_insert=True, using=self.using))

    def forget(self) -> None:
        """Delete the row that this claim inserted; the delivery must leave no event behind."""
        with ledger.own_transaction(self.using):
            self.fence()
            WebhookEvent.objects.using(self.using).filter(pk=self.event.pk).delete()

    def give_back(self) -> None:
        """Leave the event as it was before this delivery, which nothing vouches for."""
        before = self.event.attempts - 1
        if before == 0:
            self.forget()
            return
        with ledger.own_transaction(self.using):
            soon = timezone.now() if self.work.lane is not None else None
            changes = {"attempts": before, "next_attempt_at": soon}
            ledger.finish(self.event, self.token, status=EventStatus.FAILED, **changes)

    def look(self) -> None:
        """Raise LeaseLost if somebody took the event over: no further handler is to start."""
        events = WebhookEvent.objects.using(self.using)
        if not events.held_by(self.event.pk, self.token).exists():
            raise LeaseLost(f"The lease on event {self.event.pk} ran out.")

    def fence(self) -> None:
        """Raise LeaseLost if the row no longer carries our token.

        Called last in a transaction: the row stays locked from here to the commit and no longer.
        """
        mine = WebhookEvent.objects.using(self.using).held_by(self.event.pk, self.token)
        if mine.update(lease_token=self.token) != 1:
            raise LeaseLost(f"The lease on event {self.event.pk} ran out.")

    def end(self, value: Any, error: Exception | None) -> Result:
        """Write how the event and the delivery ended. Raises LeaseLost."""
        event, work = self.event, self.work
        if error is not None and is_unproven(error, work):
            self.give_back()
            return Result(Outcome.REJECTED, error=error, unproven=True)
        if error is not None:
            changes = changes_after(error, event.attempts, work)
            result = Result.of_failure(event, error)
        else:
            changes = changes_done(event, work, value)
            outcome = Outcome.PROCESSED if work.handlers else Outcome.IGNORED
            result = Result(outcome, event, value=value)

        def write() -> Result:
            with ledger.own_transaction(self.using):
                ledger.finish(event, self.token, **changes)
                return work.record(result, self.using)

        return insist(self.using, write)

    def overtaken(self) -> Result:
        """Somebody else holds the event by now; what became of it is theirs to say."""
        self.work.report.note = "the lease ran out while the handler ran"
        stored = WebhookEvent.objects.using(self.using).filter(pk=self.event.pk).first()
        finished = stored is not None and stored.is_finished
        return Result(Outcome.DUPLICATE if finished else Outcome.IN_PROGRESS, stored)
