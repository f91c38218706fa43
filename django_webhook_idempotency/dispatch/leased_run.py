"""The handlers of an event under a lease, each finished behind the fence of its token."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from .. import ledger
from ..enums import EventStatus, Outcome
from ..exceptions import LeaseLost
from ..handlers import Handler
from ..models import WebhookEvent
from ..stores import LeaseStore
from .claims import Claim, release
from .failures import is_unproven
from .finish import finish
from .heartbeat import BEATS, heartbeat
from .meeting import meet_twin
from .runs import (
    Run,
    WriterBusy,
    call,
    insist,
    retried,
    worse,
)
from .steps import Steps
from .transitions import changes_after, changes_done, remaining
from .work import Result, Work


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
                        if handler is not handlers[0] or self.is_late:
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
            changes = {"attempts": before, "next_attempt_at": soon, "lane": self.work.lane}
            ledger.finish(self.event, self.token, status=EventStatus.FAILED, **changes)

    @property
    def is_late(self) -> bool:
        """Whether the first handler starts so long after the claim that it may be lost by now."""
        expires_at = self.event.lease_expires_at
        left = expires_at - timezone.now() if expires_at is not None else timedelta(0)
        return left < self.work.provider.lease * (1 - 1 / BEATS)

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

        finish(event, self.token, changes, also=lambda: work.record(result, self.using))
        return result

    def overtaken(self) -> Result:
        """Somebody else holds the event by now; what became of it is theirs to say."""
        self.work.report.note = "the lease ran out while the handler ran"
        stored = WebhookEvent.objects.using(self.using).filter(pk=self.event.pk).first()
        finished = stored is not None and stored.is_finished
        return Result(Outcome.DUPLICATE if finished else Outcome.IN_PROGRESS, stored)
