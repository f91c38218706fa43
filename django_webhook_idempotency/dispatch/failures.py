"""After a run that was rolled back: leave the event where it can be run again."""

from __future__ import annotations

import logging

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import DatabaseError
from django.http import Http404

from .. import ledger
from ..enums import EventStatus, Outcome
from ..models import WebhookEvent
from .runs import Run, patience
from .transitions import changes_after
from .work import SERVER_ERROR, Result, ViewFailed, Work

logger = logging.getLogger("django_webhook_idempotency")


def is_unproven(error: BaseException, work: Work) -> bool:
    """Whether a view turned away a delivery that no signature vouches for.

    Such a delivery must leave no event behind: a stranger could claim an id with it.
    """
    if work.provider.is_signed or work.acknowledged:
        return False
    if isinstance(error, ViewFailed):
        return error.response.status_code < SERVER_ERROR
    return isinstance(error, PermissionDenied | Http404 | SuspiciousOperation)


def record_failure(
    event: WebhookEvent,
    work: Work,
    error: BaseException,
    run: Run,
    stored: WebhookEvent | None = None,
) -> Result:
    """Store that a run failed, in a transaction of its own, so that the event can run again.

    `stored` is the event's row if it had one before this run. Somebody else may have taken the
    event over since the rollback; then what they make of it stands, and until that is known the
    delivery is in progress, whatever this run would have answered. A database that cannot be
    reached raises its own error.
    """
    if is_unproven(error, work):
        return Result(Outcome.REJECTED, error=error, unproven=True)
    ledger.drop_broken_connection(ledger.alias())
    failure = Failure(event, work, error, run)
    for _ in patience(work.provider.wait):
        try:
            result = failure.record(stored)
        except DatabaseError as problem:
            if not ledger.is_passing(problem):
                raise
            continue
        if result is not None:
            return result
    logger.error(
        "webhook failure not stored, another run holds the event: provider=%s error=%s",
        event.provider,
        type(error).__name__,
    )
    return Result(Outcome.IN_PROGRESS, stored)


class Failure:
    """A failed run on its way into the ledger."""

    def __init__(self, event: WebhookEvent, work: Work, error: BaseException, run: Run) -> None:
        self.event = event
        self.work = work
        self.error = error
        self.run = run
        self.using = ledger.alias()
        # What the run's own commit would have written, should it have been applied after all.
        self.mark = event.pk, event.processed_at

    def record(self, stored: WebhookEvent | None) -> Result | None:
        """Write the failure if the event is free; None while somebody else holds it."""
        if stored is None:
            with ledger.own_transaction(self.using):
                if self.insert():
                    return self.finish(self.event)
            # Between the transactions: inside of one, an older snapshot could hide the row.
            stored = ledger.find(self.event)
        if stored is None:
            return None
        with ledger.own_transaction(self.using):
            return self.change(stored)

    def insert(self) -> bool:
        """Insert the event's row as a first run that failed leaves it."""
        self.event.pk = None
        for name, value in changes_after(self.error, 1, self.work).items():
            setattr(self.event, name, value)
        return WebhookEvent.objects.using(self.using).insert_once(self.event).won

    def change(self, stored: WebhookEvent) -> Result | None:
        """Write the failure into the row that is there, if nobody holds it."""
        locked = WebhookEvent.objects.using(self.using).lock(stored.pk)
        if locked is None:
            return None
        # Committed behind Django's back before the handler failed: by DDL on MariaDB, say.
        too_early = locked.is_finished and self.run.raised and self.is_own(locked)
        if locked.is_finished and not too_early:
            return self.already_finished(locked)
        if locked.status == EventStatus.PROCESSING and not locked.lease_has_expired:
            return None
        self.run.number = locked.attempts + (0 if too_early else 1)
        ledger.finish(locked, **changes_after(self.error, self.run.number, self.work))
        return self.finish(locked)

    def is_own(self, locked: WebhookEvent) -> bool:
        """Whether the row is as this very run meant to leave it."""
        return (locked.pk, locked.processed_at) == self.mark

    def already_finished(self, locked: WebhookEvent) -> Result:
        """The event is done: by somebody else, or by this very run.

        The latter when the error came with the commit or after it: a connection that broke
        before the answer, or an `on_commit` function of the handler's.
        """
        if not self.is_own(locked):
            return Result(Outcome.DUPLICATE, locked)
        logger.error(
            "webhook processed, but an error came with its commit or after it: provider=%s "
            "error=%s",
            self.event.provider,
            type(self.error).__name__,
        )
        result = Result(Outcome.PROCESSED, locked, recorded=True)
        self.work.settle(result)
        return result

    def finish(self, event: WebhookEvent) -> Result:
        """Write the run's row and the delivery's."""
        self.run.row(event, self.error).save(force_insert=True, using=self.using)
        result = Result.of_failure(event, self.error)
        return self.work.record(result, self.using)
