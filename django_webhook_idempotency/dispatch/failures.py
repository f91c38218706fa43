"""After a run that was rolled back: leave the event where it can be run again."""

from __future__ import annotations

import logging

from .. import ledger
from ..enums import EventStatus, Outcome
from ..exceptions import Ignore
from ..models import WebhookEvent
from ..providers.base import SERVICE_UNAVAILABLE
from .runs import Run, changes_after, patience
from .work import Result, ViewFailed, Work

SERVER_ERROR = 500

logger = logging.getLogger("django_webhook_idempotency")


def outcome_of(error: BaseException) -> Outcome:
    """What a delivery whose handler raised `error` came to."""
    return Outcome.IGNORED if isinstance(error, Ignore) else Outcome.FAILED


def answered_status(work: Work, error: BaseException) -> int:
    """The status that a failed delivery is answered with."""
    if isinstance(error, ViewFailed):
        return error.response.status_code
    if ledger.is_transient(error):
        return SERVICE_UNAVAILABLE
    return work.provider.answer_status(outcome_of(error), error)


def is_unproven(error: BaseException, work: Work) -> bool:
    """Whether a view turned away a delivery that no signature vouches for.

    Such a delivery must leave no event behind: a stranger could claim an id with it.
    """
    return (
        not work.provider.is_signed
        and isinstance(error, ViewFailed)
        and error.response.status_code < SERVER_ERROR
    )


def record_failure(
    event: WebhookEvent, work: Work, error: Exception, run: Run, stored: WebhookEvent | None = None
) -> Result:
    """Store that a run failed, in a transaction of its own, so that the event can run again.

    `stored` is the event's row if it had one before this run. Somebody else may have taken the
    event over since the rollback; then what they make of it stands. A database that cannot be
    reached raises its own error.
    """
    if stored is None and is_unproven(error, work):
        return Result(Outcome.REJECTED, error=error, unproven=True)
    using = ledger.alias()
    ledger.drop_broken_connection(using)
    for _ in patience(work.provider.wait):
        with ledger.own_transaction(using):
            result = _record(event, work, error, run, stored)
        if result is not None:
            return result
    logger.error(
        "webhook failure not stored, another run holds the event: provider=%s error=%s",
        event.provider,
        type(error).__name__,
    )
    return Result(outcome_of(error), stored, error)


def _record(
    event: WebhookEvent, work: Work, error: Exception, run: Run, stored: WebhookEvent | None
) -> Result | None:
    """Write the failure if the event is free; None while somebody else holds it."""
    if stored is None:
        event.pk = None
        for name, value in changes_after(error, 1, work.provider).items():
            setattr(event, name, value)
        if _store_new(event):
            return _finish(event, work, error, run)
        stored = ledger.find(event)
    if stored is None:
        return None
    locked = WebhookEvent.objects.using(ledger.alias()).lock(stored.pk)
    if locked is None:
        return None
    if locked.is_finished:
        return Result(Outcome.DUPLICATE, locked)
    if locked.status == EventStatus.PROCESSING and not locked.lease_has_expired:
        return None
    changes = changes_after(error, locked.attempts + 1, work.provider)
    run.number = locked.attempts + 1
    ledger.finish(locked, **changes)
    return _finish(locked, work, error, run)


def _store_new(event: WebhookEvent) -> bool:
    return WebhookEvent.objects.using(ledger.alias()).insert_once(event).won


def _finish(event: WebhookEvent, work: Work, error: Exception, run: Run) -> Result:
    using = ledger.alias()
    run.row(event, error).save(force_insert=True, using=using)
    report = work.report
    report.outcome = outcome_of(error)
    report.status = answered_status(work, error)
    report.save(event, using)
    return Result(report.outcome, event, error, recorded=True)
