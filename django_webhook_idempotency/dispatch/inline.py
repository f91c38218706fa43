"""In the request, in one transaction: the claim, the handlers and `processed` commit together."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from .. import ledger
from ..enums import EventStatus, Outcome
from ..models import WebhookEvent
from .atomic_run import AtomicRun
from .key_locks import keep
from .meeting import meet, meet_twin
from .responses import remembered
from .runs import patience, read_stored
from .transitions import changes_after, changes_done, records
from .work import Result, Work


def deliver_atomic(event: WebhookEvent, work: Work) -> Result:
    """Run an event's handlers if nobody has, waiting a bounded time for somebody who is.

    A database that cannot be reached raises its own error, and nothing is written.
    """
    stored: WebhookEvent | None = None
    held_up = False
    for _ in patience(work.provider.wait):
        first = FirstRun(event, work)
        result = first.attempt()
        if result is not None:
            return result
        held_up |= first.keys.busy
        stored = ledger.find(event, with_response=work.replay_response)
        if stored is None:
            continue
        result = meet(event, stored, work) or SecondRun(event, work, stored).attempt()
        if result is not None:
            return result
    if stored is None and held_up:
        return keep(event, work)
    return Result(Outcome.IN_PROGRESS, stored)


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
        if not self.keys.lock(event, handlers):
            return None
        self.claim()
        if len(handlers) > 1:
            failure = self.call_each(handlers, 1)
            if failure is not None:
                changes = changes_after(failure, 1, self.work)
                ledger.finish(event, body=event.body, **changes)
                return self.end(Outcome.FAILED, error=failure)
            if self.superseded:
                ledger.finish(event, status=EventStatus.SUPERSEDED)
                return self.end(Outcome.SUPERSEDED)
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
        if not self.keys.lock(locked, self.work.handlers):
            return None
        self.claim()
        # As in a first run, the handler sees the number of the run that it is in.
        number = locked.attempts = locked.attempts + 1
        self.work.prepare(locked)
        past = records(locked, self.work.handlers)
        handlers = [each for each in self.work.handlers if not past[each.stored_name].is_done]
        if len(self.work.handlers) > 1:
            failure = self.call_each(handlers, number)
            if failure is not None:
                ledger.finish(locked, **changes_after(failure, number, self.work))
                return self.end(Outcome.FAILED, error=failure)
            self.superseded &= not any(record.succeeded for record in past.values())
            return self.done(number)
        value = None
        if handlers:
            value = self.call(handlers[0], number)
            assert self.run is not None  # noqa: S101
            self.run.row(locked).save(force_insert=True, using=self.using)
        return self.done(number, value)

    def done(self, number: int, value: Any = None) -> Result:
        """Write that the event has been processed, or ignored if nobody wants it any more."""
        changes = changes_done(self.event, self.work, value)
        if self.superseded:
            changes["status"] = EventStatus.SUPERSEDED
        ledger.finish(self.event, attempts=number, **changes)
        if self.superseded:
            return self.end(Outcome.SUPERSEDED)
        return self.end(Outcome.PROCESSED if self.work.handlers else Outcome.IGNORED, value)
