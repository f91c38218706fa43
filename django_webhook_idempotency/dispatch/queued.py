"""In a worker, after the answer: run a claimed event's handlers and write down how it ended."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections
from django.utils import timezone

from .. import ledger
from ..enums import EventStatus, Outcome
from ..exceptions import Ignore, LeaseLost, Reject, WebhookError
from ..handlers import Handler
from ..inserts import is_locked
from ..models import HandlerRun, WebhookEvent
from ..stores import LeaseStore, lease_store
from ..stores.database import DatabaseStore
from .claims import Claim, release
from .heartbeat import heartbeat
from .leased import LeasedRun
from .resolving import work_of
from .run_log import announce_run, log_run
from .runs import Run, WriterBusy, call, insist, worse
from .transitions import Record, changes_done, records, wait_after
from .work import Result, Work

logger = logging.getLogger("django_webhook_idempotency")

#: How long an event waits for the settings to be put right.
MISCONFIGURED_WAIT = timedelta(seconds=60)


#: How long an event waits that did not get SQLite's one lock for writing.
BUSY_WAIT = timedelta(seconds=1)


class WorkerLost(WebhookError):
    """The process that ran an event ended or stalled while its handler ran."""


def run_claim(claim: Claim) -> Result:
    """Run a claimed event to its end, tell the log and the signals.

    What a handler raises is stored, never raised. Raises the database's own error when the end
    can't be written: then the lease runs out, and the event is run again.
    """
    started_at, event = timezone.now(), claim.event
    try:
        work = work_of(event)
    except ImproperlyConfigured as error:
        logger.critical("webhook event %s waits for the settings: %s", event.pk, error)
        give_back(claim, MISCONFIGURED_WAIT, error)
        return Result(Outcome.FAILED, event, error)
    try:
        result = QueuedRun(claim, work, RowAndStore(lease_store())).run_all()
    except WriterBusy as error:
        give_back(claim, BUSY_WAIT, error)
        return Result(Outcome.IN_PROGRESS, event, error)
    log_run(event, result, started_at)
    announce_run(event, result)
    return result


def give_back(
    claim: Claim, wait: timedelta = timedelta(0), error: BaseException | None = None
) -> bool:
    """Leave a claimed event to be run after `wait`; if no handler has ended, at no cost.

    What still runs of it cannot write its end any more. False if somebody else holds it by now.
    """
    event, using = claim.event, ledger.alias()
    before = event.attempts - 1
    changes: dict[str, Any] = {
        "status": EventStatus.FAILED if before else EventStatus.PENDING,
        "attempts": before,
        "next_attempt_at": timezone.now() + wait,
    }
    if error is not None:
        changes["last_error"] = ledger.error_text(error)

    def write() -> None:
        with ledger.own_transaction(using):
            ledger.write_finish(event, claim.token, changes)
            # After the fence, so that none can come in between: a run that has ended is not to be
            # forgotten, and a first attempt would not look for it.
            if HandlerRun.objects.using(using).filter(event=event, number=before + 1).exists():
                row = WebhookEvent.objects.using(using).filter(pk=event.pk)
                row.update(attempts=before + 1, status=EventStatus.FAILED)

    try:
        insist(using, write)
    except LeaseLost:
        return False
    finally:
        release(lease_store(), event.dedupe_key, claim.token)
    return True


class RowAndStore(DatabaseStore):
    """A lease that another store decides on, kept in the event's row as well.

    The row says to the other workers when they may look again.
    """

    def __init__(self, store: LeaseStore) -> None:
        self.store = store
        self.exclusive = store.exclusive

    def renew(self, key: str, token: str, lease: timedelta) -> bool:
        """Renew both; False if either is lost."""
        return super().renew(key, token, lease) and self.store.renew(key, token, lease)

    def release(self, key: str, token: str) -> None:
        """Give the store's back; a finish clears the row's."""
        self.store.release(key, token)


class QueuedRun(LeasedRun):
    """The handlers of a claimed event. The last atomic one commits together with `processed`."""

    def __init__(self, claim: Claim, work: Work, store: Any) -> None:
        super().__init__(claim, work, store)
        self.abandoned = claim.abandoned
        self.past: dict[str, Record] = {}
        #: The handlers that failed in this attempt.
        self.failures: dict[Handler, Exception] = {}
        self.settled: Result | None = None
        #: Whether the handler that runs now may end the event in its own transaction.
        self.may_settle = False

    def run_all(self) -> Result:
        """Run the handlers whose turn it is, each as if it were alone."""
        try:
            if self.abandoned and self.event.attempts > self.work.max_attempts:
                return self.bury()
            with heartbeat(self.store, self.event.dedupe_key, self.token, self.work.provider.lease):
                todo = self.todo()
                for handler in todo:
                    if handler is not todo[0]:
                        self.look()
                    self.attempt(handler, is_last=handler is todo[-1])
                return self.settled or self.settle()
        except LeaseLost:
            return self.overtaken()
        finally:
            release(self.store, self.event.dedupe_key, self.token)

    def todo(self) -> list[Handler]:
        """The handlers to run: not those that succeeded, nor those that gave the event up.

        Unless only the latter are left: then somebody let the event run again.
        """
        handlers = self.work.handlers
        if self.event.attempts == 1:
            self.past = {handler.stored_name: Record() for handler in handlers}
            return handlers
        self.past = records(self.event, handlers)
        left = [each for each in handlers if not self.past[each.stored_name].succeeded]
        return [each for each in left if not self.has_given_up(each)] or left

    def has_given_up(self, handler: Handler) -> bool:
        """Whether a handler is not to be tried again by itself."""
        return self.past[handler.stored_name].has_given_up(handler, self.work.provider)

    def attempt(self, handler: Handler, *, is_last: bool) -> None:
        """Run one handler and note how it went. Raises LeaseLost."""
        self.may_settle = is_last and not self.failures and not self.given_up
        record = self.past[handler.stored_name]
        try:
            self.call(handler)
        except (LeaseLost, WriterBusy):
            raise
        except Exception as error:
            self.failures[handler] = error
            if not isinstance(error, Ignore):
                record.failures += 1
                record.rejected |= isinstance(error, Reject)
        else:
            record.succeeded = True

    @property
    def given_up(self) -> list[Handler]:
        """The handlers that are not to be tried again by themselves, and have not succeeded."""
        return [
            each
            for each in self.work.handlers
            if not self.past[each.stored_name].succeeded and self.has_given_up(each)
        ]

    def call_fenced(self, run: Run) -> Any:
        """Run an atomic handler; what it wrote is undone if the lease is not ours by then."""
        event, changes = self.event, None
        with ledger.own_transaction(self.using):
            self.take_write_lock()
            with ledger.unbroken(self.using):
                value = call(run.handler, event)
            if self.may_settle:
                changes = changes_done(event, self.work, value)
                if event.attempts == 1 and len(self.work.handlers) == 1:
                    changes["handled_by"] = run.handler.stored_name
            if changes is None or "handled_by" not in changes:
                run.row(event).save(force_insert=True, using=self.using)
            # Last, so that the row is locked from here to the commit and no longer.
            if changes is None:
                self.fence()
            else:
                ledger.write_finish(event, self.token, changes)
        if changes is not None:
            ledger.adopt(event, changes)
            self.settled = Result(Outcome.PROCESSED, event, value=value)
        return value

    def take_write_lock(self) -> None:
        """On SQLite, take the one lock before the handler reads: later it could be refused."""
        if connections[self.using].features.has_select_for_update:
            return
        try:
            self.fence()
        except DatabaseError as error:
            if is_locked(error):
                raise WriterBusy("SQLite's lock for writing was not free in time.") from error
            raise

    def store_run(self, run: Run, error: Exception | None = None) -> None:
        """Store how a run ended, unless somebody else runs the event by now: LeaseLost."""
        row = run.row(self.event, error)

        def write() -> None:
            with ledger.own_transaction(self.using):
                row.save(force_insert=True, using=self.using)
                self.fence()

        insist(self.using, write)

    def settle(self) -> Result:
        """Write where the event stands after this attempt. Raises LeaseLost."""
        event, work = self.event, self.work
        failed = {each: e for each, e in self.failures.items() if not isinstance(e, Ignore)}
        again = {each: e for each, e in failed.items() if not self.has_given_up(each)}
        error: Exception | None = None
        for raised in failed.values():
            error = worse(error, raised)
        if not failed and not self.given_up:
            changes = changes_done(event, work, None)
            result = Result(Outcome.PROCESSED if work.handlers else Outcome.IGNORED, event)
            if self.failures and len(work.handlers) == 1:
                changes["status"], result.outcome = EventStatus.IGNORED, Outcome.IGNORED
        else:
            waits = [wait_after(raised, event.attempts, work.provider) for raised in again.values()]
            changes = {
                "status": EventStatus.FAILED if again else EventStatus.DEAD,
                "next_attempt_at": timezone.now() + max(waits) if waits else None,
                "lane": work.lane if again else None,
                "handled_by": "",
            }
            if error is not None:
                changes["last_error"] = ledger.error_text(error)
            result = Result(Outcome.FAILED, event, error)
        insist(self.using, lambda: ledger.finish(event, self.token, **changes))
        return result

    def bury(self) -> Result:
        """Give up an event whose every attempt ended its worker."""
        attempts = self.event.attempts - 1
        error = WorkerLost(f"The worker ended or stalled while it ran the event, {attempts} times.")
        ledger.finish(
            self.event,
            self.token,
            status=EventStatus.DEAD,
            attempts=attempts,
            next_attempt_at=None,
            lane=None,
            last_error=ledger.error_text(error),
        )
        return Result(Outcome.FAILED, self.event, error)
