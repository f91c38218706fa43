"""One attempt of a worker at a claimed event: its handlers, each as if it were alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from django.db import DatabaseError, connections
from django.db.models import QuerySet

from .. import ledger
from ..enums import Outcome
from ..exceptions import Ignore, LeaseLost, Reject, Superseded
from ..handlers import Handler
from ..inserts import is_locked
from ..models import HandlerRun
from .claims import Claim, release
from .endings import Ending, given_up
from .finish import finish, is_written
from .heartbeat import heartbeat
from .leased_run import LeasedRun
from .losses import charge, in_turn, note_start, notes_starts, runs_of
from .replayed import Replays
from .runs import Run, WriterBusy, call, insist
from .transitions import Record, changes_done, records
from .turns import Turns, Waits
from .work import Result, Work


class QueuedRun(LeasedRun):
    """The handlers of a claimed event. The last atomic one commits together with `processed`."""

    def __init__(self, claim: Claim, work: Work, store: Any) -> None:
        super().__init__(claim, work, store)
        self.abandoned = claim.abandoned
        self.past: dict[str, Record] = {}
        #: The handlers that failed in this attempt.
        self.failures: dict[Handler, Exception] = {}
        #: Those whose retry is not due yet: the event runs for another one's turn.
        self.resting: list[Handler] = []
        self.rest_until: datetime | None = None
        self.turns = Turns(claim.event, self.using, matter=work.is_ordered)
        #: Whether runs are written down before they start.
        self.notes_starts = notes_starts(work)
        #: Whether a handler was called in this attempt.
        self.ran = False
        self.settled: Result | None = None
        #: Whether the handler that runs now may end the event in its own transaction.
        self.may_settle = False
        #: What that transaction meant to write of the event, and what the handler returned.
        self.meant: tuple[dict[str, Any], Any] | None = None

    def run_all(self) -> Result:
        """Run the handlers whose turn it is, each as if it were alone."""
        try:
            with heartbeat(self.store, self.event.dedupe_key, self.token, self.work.provider.lease):
                todo = self.load()
                for handler in todo:
                    if handler is not todo[0] or self.is_late:
                        self.look()
                    self.attempt(handler, is_last=handler is todo[-1])
                if self.settled is None:
                    return self.settle()
                self.turns.drop()
                return self.settled
        except LeaseLost:
            return self.overtaken()
        finally:
            release(self.store, self.event.dedupe_key, self.token)

    def load(self) -> list[Handler]:
        """Read, and write down, what came before; then say which handlers are to run."""
        try:
            self.turns.load()
            return self.todo()
        except DatabaseError as error:
            if is_locked(error):
                raise WriterBusy("The lock for writing was not free in time.") from error
            raise

    def todo(self) -> list[Handler]:
        """The handlers to run: not those that are through, nor those that gave the event up."""
        handlers = self.work.handlers
        if self.event.attempts == 1:
            self.past = {handler.stored_name: Record() for handler in handlers}
            return handlers
        replays = Replays.of(self.event)
        handlers = replays.in_turn(handlers)
        self.past = records(self.event, handlers, replays)
        if self.abandoned:
            charge(self.event, self.work, handlers, self.past)
        handlers = in_turn(handlers, self.past)
        left = [each for each in handlers if not self.past[each.stored_name].is_done]
        todo = [each for each in left if not self.has_given_up(each)]
        self.turns.keep(todo)
        self.rest_until = self.turns.rest_until
        if self.rest_until is not None:
            self.resting = [each for each in todo if self.is_resting(each)]
        others, until = replays.resting(todo, self.turns)
        if until is not None:
            self.resting += [each for each in others if each not in self.resting]
            self.rest_until = max(filter(None, [self.rest_until, until]))
        # Whoever looks at a loss could not tell a handler that rests from the one that ran.
        self.notes_starts |= bool(self.resting)
        return [each for each in todo if each not in self.resting]

    def is_resting(self, handler: Handler) -> bool:
        """Whether a handler failed and waits for its retry, and not for its turn."""
        return bool(self.past[handler.stored_name].failures) and not self.turns.is_waiting(handler)

    def has_given_up(self, handler: Handler) -> bool:
        """Whether a handler is not to be tried again by itself."""
        return self.past[handler.stored_name].has_given_up(handler, self.work.provider)

    def attempt(self, handler: Handler, *, is_last: bool) -> None:
        """Run one handler, unless it has to wait, and note how it went. Raises LeaseLost."""
        self.may_settle = is_last and self.is_clean
        record = self.past[handler.stored_name]
        try:
            self.call(handler)
        except (LeaseLost, WriterBusy):
            raise
        except Waits:
            return
        except Exception as error:
            self.failures[handler] = error
            if not isinstance(error, Ignore):
                record.failures += 1
                record.rejected |= isinstance(error, Reject)
            record.superseded |= isinstance(error, Superseded)
        else:
            record.succeeded = True
        self.ran = True
        self.turns.pass_on()

    def call(self, handler: Handler) -> Any:
        """Run one handler in its turn. Raises Waits if an older event comes first."""
        try:
            self.turns.enter(handler)
            if self.notes_starts:
                # Behind the fence: what was given back meanwhile is to carry no start of ours.
                note_start(self.event, handler, self.event.attempts, fence=self.fence)
        except (Waits, LeaseLost):
            raise
        except Exception as error:
            if is_locked(error):
                raise WriterBusy("The lock for writing was not free in time.") from error
            self.store_run(Run(handler, self.event.attempts), error)
            raise
        try:
            return super().call(handler)
        except LeaseLost:
            if self.meant is None or not is_written(self.event, self.meant[0]):
                raise
            return self.settle_with(*self.meant)
        except WriterBusy:
            raise
        except Exception as error:
            # Committed all the same: the connection broke before the answer.
            runs = self.stored(Run(handler, self.event.attempts)).filter(error_class="")
            if isinstance(error, Ignore) or not runs.exists():
                raise
            return None

    @property
    def is_clean(self) -> bool:
        """Whether nothing of the event has failed, or is left for later, so far."""
        if self.failures or self.resting or self.turns.waiting:
            return False
        return not given_up(self.work, self.past)

    @property
    def has_only_waited(self) -> bool:
        """Whether no handler was called, since it was no handler's turn."""
        return bool(self.turns.waiting or self.resting) and not self.ran

    def call_fenced(self, run: Run) -> Any:
        """Run an atomic handler; what it wrote is undone if the lease is not ours by then."""
        event, changes = self.event, None
        with ledger.own_transaction(self.using):
            self.take_write_lock()
            with ledger.unbroken(self.using):
                value = call(run.handler, event)
            self.turns.leave(done=True, applied=True)
            if self.may_settle:
                changes = changes_done(event, self.work, value)
                if event.attempts == 1 and len(self.work.handlers) == 1:
                    changes["handled_by"] = run.handler.stored_name
            if changes is None or "handled_by" not in changes:
                self.end_run(run.row(event))
            # Last, so that the row is locked from here to the commit and no longer.
            if changes is None:
                self.fence()
            else:
                self.meant = changes, value
                ledger.write_finish(event, self.token, changes)
        return value if changes is None else self.settle_with(changes, value)

    def settle_with(self, changes: Mapping[str, Any], value: Any) -> Any:
        """The last handler has committed together with `processed`. Returns what it returned."""
        ledger.adopt(self.event, changes)
        self.settled = Result(Outcome.PROCESSED, self.event, value=value)
        return value

    def end_run(self, row: HandlerRun) -> None:
        """Write a run that has ended in place of the note that it has started."""
        if self.notes_starts:
            runs = runs_of(self.event, row.handler, row.number)
            runs.filter(finished_at=None)._raw_delete(self.using)
        row.pk = None
        row.save(force_insert=True, using=self.using)

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
        tries = 0
        done = error is None or isinstance(error, Ignore) or self.is_last_failure(run, error)

        def write() -> None:
            nonlocal tries
            tries += 1
            with ledger.own_transaction(self.using):
                self.turns.leave(done=done, applied=error is None)
                # A commit whose answer was lost may have written it.
                if (error is None and tries == 1) or not self.stored(run).exists():
                    self.end_run(row)
                self.fence()

        insist(self.using, write)

    def stored(self, run: Run) -> QuerySet[HandlerRun]:
        """The row of a run that has ended, if it is there."""
        runs = runs_of(self.event, run.handler.stored_name, run.number)
        return runs.filter(finished_at__isnull=False)

    def is_last_failure(self, run: Run, error: Exception) -> bool:
        """Whether a handler that failed now gives the event up."""
        past = self.past[run.handler.stored_name]
        now = replace(past, failures=past.failures + 1, rejected=isinstance(error, Reject))
        return now.has_given_up(run.handler, self.work.provider)

    def settle(self) -> Result:
        """Write where the event stands after this attempt. Raises LeaseLost."""
        ending = Ending(
            event=self.event,
            work=self.work,
            past=self.past,
            failures=self.failures,
            wait=self.turns.wait,
            rest_until=self.rest_until if self.resting else None,
            ran=self.ran,
        )
        result, changes = ending.result, ending.changes()
        # Behind the fence: who was overtaken says nothing to whoever runs the event now.
        rest = partial(self.turns.rest, ending.retry_at) if self.turns.waiting else None
        finish(self.event, self.token, changes, also=rest)
        if ending.is_open:
            self.turns.look_again()
        else:
            self.turns.drop()
        return result
