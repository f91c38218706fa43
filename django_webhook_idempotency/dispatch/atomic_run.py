"""The one transaction in which an event of a request is claimed and its handlers run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from typing import Any

from django.db import transaction

from .. import ledger
from ..enums import Outcome
from ..exceptions import Superseded
from ..handlers import Handler
from ..inserts import is_locked
from ..models import WebhookEvent
from .failures import record_failure
from .key_locks import KeyLocks, KeysMissing
from .runs import TRANSIENT_TRIES, Run, call, pause_before, worse
from .work import Result, Work


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
        self.keys = KeyLocks(self.using)
        #: Whether all that ran, or would have run, of several handlers was superseded.
        self.superseded = False

    def attempt(self) -> Result | None:
        """Run the transaction, again if the database undid it for another.

        None if somebody else holds the event, or another event of its ordering key. After a
        failure the event is stored as failed.
        """
        for tries in range(1, TRANSIENT_TRIES + 1):
            self.claimed = False
            try:
                with ExitStack() as self.waiting:
                    self.waiting.enter_context(
                        ledger.bounded_lock_wait(self.using, self.work.provider.wait)
                    )
                    result = self.transact()
                if result is not None:
                    self.keys.pass_on()
                return result
            except KeysMissing as missing:
                self.keys.create(missing)
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
        self.work.report.ran = True
        with ledger.unbroken(self.using):
            try:
                self.keys.enter(handler)
                value = call(handler, self.event)
                self.keys.leave(handler)
                return value
            except BaseException:
                run.raised = True
                raise

    def call_each(self, handlers: list[Handler], number: int) -> Exception | None:
        """Call several handlers, each in a savepoint, so that one failure undoes only its own.

        Returns the error that counts. What is left of the event is run again without those that
        succeeded.
        """
        failure: Exception | None = None
        superseded = 0
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
            superseded += isinstance(error, Superseded)
        self.superseded = superseded == len(handlers) > 0
        return failure

    def end(self, outcome: Outcome, value: Any = None, error: Exception | None = None) -> Result:
        """Write the delivery's row into the transaction."""
        result = self.work.record(Result(outcome, self.event, error, value), self.using)
        if not self.work.provider.store_deliveries:
            ledger.require_alive(self.using)
        return result
