"""In the request, in one transaction: the claim, the handlers and `processed` commit together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from typing import Any

from django.db import transaction
from django.utils import timezone

from .. import ledger
from ..enums import EventStatus, Outcome
from ..handlers import Handler
from ..inserts import is_locked
from ..models import WebhookEvent
from .failures import record_failure
from .meeting import meet, meet_twin
from .responses import remembered
from .runs import (
    TRANSIENT_TRIES,
    Run,
    call,
    patience,
    pause_before,
    read_stored,
    worse,
)
from .transitions import changes_after, changes_done, remaining
from .work import Result, Work


def deliver_atomic(event: WebhookEvent, work: Work) -> Result:
    """Run an event's handlers if nobody has, waiting a bounded time for somebody who is.

    A database that cannot be reached raises its own error, and nothing is written.
    """
    stored: WebhookEvent | None = None
    for _ in patience(work.provider.wait):
        result = FirstRun(event, work).attempt()
        if result is not None:
            return result
        stored = ledger.find(event, with_response=work.replay_response)
        if stored is None:
            continue
        result = meet(event, stored, work) or SecondRun(event, work, stored).attempt()
        if result is not None:
            return result
    return Result(Outcome.IN_PROGRESS, stored)


class AtomicRun(ABC):
    """One transaction in which an event is claimed and its handlers run."""

    def __init__(self, event: WebhookEvent, work: Work, stored: WebhookEvent | None = None) -> None:
        self.event = event
        self.work = work
        self.stored = stored
        self.using = ledger.alias()
        self.claimed = False
        self.waiting = ExitStack()
        self.run: Run | None = None

    def attempt(self) -> Result | None:
        """Run the transaction, again if the database undid it for another.

        None if somebody else holds the event. After a failure the event is stored as failed.
        """
        for tries in range(1, TRANSIENT_TRIES + 1):
            self.claimed = False
            try:
                with ExitStack() as self.waiting:
                    self.waiting.enter_context(
                        ledger.bounded_lock_wait(self.using, self.work.provider.wait)
                    )
                    return self.transact()
            except Exception as error:
                if ledger.is_transient(error) and tries < TRANSIENT_TRIES:
                    pause_before(tries + 1)
                elif self.claimed and self.run is not None:
                    return record_failure(self.event, self.work, error, self.run, self.stored)
                elif is_locked(error):
                    return None
                else:
                    raise
            except BaseException as end:
                # The process is to end, for a server's time limit perhaps; GitHub would not
                # send the event again.
                if self.claimed and self.run is not None:
                    with suppress(Exception):
                        record_failure(self.event, self.work, end, self.run, self.stored)
                raise
        return None

    def transact(self) -> Result | None:
        """Claim and run in one transaction, undone if there was nothing to claim."""
        with ledger.own_transaction(self.using):
            result = self.claim_and_run()
            if result is None or result.event is not self.event:
                transaction.set_rollback(True, using=self.using)
        return result

    def claim(self) -> None:
        """From here on the event is ours, and the handler waits for locks as it likes."""
        self.waiting.close()
        self.claimed = True

    @abstractmethod
    def claim_and_run(self) -> Result | None:
        """Claim the event and run it; None if it isn't free."""

    def call(self, handler: Handler, number: int) -> Any:
        """Call one handler. Raises what it raises, and if it broke the transaction."""
        self.run = run = Run(handler, number)
        with ledger.unbroken(self.using):
            try:
                return call(handler, self.event)
            except BaseException:
                run.raised = True
                raise

    def call_each(self, handlers: list[Handler], number: int) -> Exception | None:
        """Call several handlers, each in a savepoint, so that one failure undoes only its own.

        Returns the error that counts. What is left of the event is run again without those that
        succeeded.
        """
        failure: Exception | None = None
        for handler in handlers:
            error: Exception | None = None
            try:
                with transaction.atomic(using=self.using):
                    self.call(handler, number)
            except Exception as raised:
                if ledger.is_transient(raised):
                    raise
                error = raised
            if self.run is not None:
                self.run.row(self.event, error).save(force_insert=True, using=self.using)
            failure = worse(failure, error)
        return failure

    def end(self, outcome: Outcome, value: Any = None, error: Exception | None = None) -> Result:
        """Write the delivery's row into the transaction."""
        result = self.work.record(Result(outcome, self.event, error, value), self.using)
        if not self.work.provider.store_deliveries:
            ledger.require_alive(self.using)
        return result


class FirstRun(AtomicRun):
    """The event's row is inserted as processed, and seen by nobody until the commit."""

    twin: int | None = None

    def claim_and_run(self) -> Result | None:
        """Insert the row, then run the handlers."""
        event, handlers = self.event, self.work.handlers
        event.status = EventStatus.PROCESSED if handlers else EventStatus.IGNORED
        event.processed_at = timezone.now()
        event.attempts = 1 if handlers else 0
        event.handled_by = handlers[0].stored_name if len(handlers) == 1 else ""
        if not self.insert():
            return None
        if self.twin is not None:
            refused = meet_twin(self.twin, self.work)
            if refused is not None:
                return refused
        self.claim()
        if len(handlers) > 1:
            failure = self.call_each(handlers, 1)
            if failure is not None:
                changes = changes_after(failure, 1, self.work)
                ledger.finish(event, body=event.body, **changes)
                return self.end(Outcome.FAILED, error=failure)
            return self.end(Outcome.PROCESSED)
        value = self.call(handlers[0], 1) if handlers else None
        if self.work.replay_response:
            ledger.finish(event, **remembered(value))
        return self.end(Outcome.PROCESSED if handlers else Outcome.IGNORED, value)

    def insert(self) -> bool:
        """Insert the row; without its body where only unfinished events keep theirs."""
        event, provider = self.event, self.work.provider
        body = event.body
        if provider.store_body == "unfinished":
            event.body = None
        events = WebhookEvent.objects.using(self.using)
        inserted = events.insert_once(event, find_twin=provider.same_body != "allow")
        event.body = body
        self.twin = inserted.twin
        return inserted.won


class SecondRun(AtomicRun):
    """An event that was stored unfinished is locked, and run from its stored bytes."""

    def claim_and_run(self) -> Result | None:
        """Lock the row, then run the handlers that have not succeeded yet."""
        assert self.stored is not None  # noqa: S101
        locked = WebhookEvent.objects.using(self.using).lock(self.stored.pk)
        if locked is None or (
            locked.status == EventStatus.PROCESSING and not locked.lease_has_expired
        ):
            return None
        if locked.is_finished:
            return Result(Outcome.DUPLICATE, locked)
        self.event = read_stored(locked, self.event, self.work.provider)
        self.claim()
        # As in a first run, the handler sees the number of the run that it is in.
        number = locked.attempts = locked.attempts + 1
        self.work.prepare(locked)
        handlers = remaining(locked, self.work.handlers)
        if len(handlers) > 1:
            failure = self.call_each(handlers, number)
            if failure is not None:
                ledger.finish(locked, **changes_after(failure, number, self.work))
                return self.end(Outcome.FAILED, error=failure)
            return self.done(number)
        value = None
        if handlers:
            value = self.call(handlers[0], number)
            assert self.run is not None  # noqa: S101
            self.run.row(locked).save(force_insert=True, using=self.using)
        return self.done(number, value)

    def done(self, number: int, value: Any = None) -> Result:
        """Write that the event has been processed, or ignored if nobody wants it any more."""
        ledger.finish(self.event, attempts=number, **changes_done(self.event, self.work, value))
        return self.end(Outcome.PROCESSED if self.work.handlers else Outcome.IGNORED, value)
