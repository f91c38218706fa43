"""In a worker, after the answer: run a claimed event's handlers and write down how it ended."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.db import DatabaseError
from django.utils import timezone

from .. import ledger
from ..enums import EventStatus, Outcome
from ..exceptions import LeaseLost, StoreUnavailable
from ..models import HandlerRun, WebhookEvent
from ..stores import lease_store
from ..stores.database import RowAndStore
from .claims import Claim, release
from .finish import finish
from .queued_run import QueuedRun
from .resolving import work_of
from .run_log import announce_run, log_run
from .runs import WriterBusy
from .work import Result

logger = logging.getLogger("django_webhook_idempotency")

#: How long an event waits for the settings, or its handler, to be put right: a tenth of its age
#: between these, so that many that wait for long do not keep a worker busy.
MISCONFIGURED_WAIT = timedelta(seconds=60)
LONGEST_MISCONFIGURED_WAIT = timedelta(minutes=10)


#: How long an event waits that did not get SQLite's one lock for writing.
BUSY_WAIT = timedelta(seconds=1)


def run_claim(claim: Claim) -> Result:
    """Run a claimed event to its end, tell the log and the signals.

    What a handler raises is stored, never raised. Raises the database's own error when the end
    can't be written: then the lease runs out, and the event is run again.
    """
    started_at, event = timezone.now(), claim.event
    try:
        work = work_of(event)
    except (DatabaseError, StoreUnavailable):
        raise
    except Exception as error:
        # Whatever keeps the handlers from being found is the project's, a module that cannot be
        # imported among it; the event has nothing to do with it.
        logger.critical(
            "webhook event %s waits for the settings: %s: %s", event.pk, type(error).__name__, error
        )
        give_back(claim, misconfigured_wait(event), error)
        return Result(Outcome.FAILED, event, error)
    run = QueuedRun(claim, work, RowAndStore(lease_store()))
    try:
        result = run.run_all()
    except WriterBusy as error:
        give_back(claim, BUSY_WAIT, error)
        return Result(Outcome.IN_PROGRESS, event, error)
    if run.has_only_waited:
        logger.debug("webhook event %s waits for an older event of its ordering key", event.pk)
        return result
    log_run(event, result, started_at)
    announce_run(event, result)
    return result


def misconfigured_wait(event: WebhookEvent) -> timedelta:
    """How long an event waits that this process cannot run."""
    tenth = (timezone.now() - event.received_at) / 10
    return min(max(tenth, MISCONFIGURED_WAIT), LONGEST_MISCONFIGURED_WAIT)


def give_back(
    claim: Claim, wait: timedelta = timedelta(0), error: BaseException | None = None
) -> bool:
    """Leave a claimed event to be run after `wait`; if no handler has ended, at no cost.

    What still runs of it cannot write its end any more. One that was abandoned before stays so:
    whoever claims it next has to find out by which handler. False if somebody else holds it by now.
    """
    event, using, until = claim.event, ledger.alias(), timezone.now() + wait
    before = event.attempts - 1
    changes: dict[str, Any] = {
        "status": EventStatus.FAILED if before else EventStatus.PENDING,
        "attempts": before,
        "next_attempt_at": until,
    }
    # Where a handler has ended, what was lost before is charged already.
    tried = {"attempts": before + 1, "status": EventStatus.FAILED, **ledger.UNLEASED}
    if claim.abandoned:
        changes["status"] = EventStatus.PROCESSING
        changes |= {"lease_token": ledger.new_token(), "lease_expires_at": until}
    if error is not None:
        changes["last_error"] = ledger.error_text(error)

    def keep() -> None:
        # After the fence, so that none can come in between: a run that has ended is not to be
        # forgotten, and a first attempt would not look for it.
        runs = HandlerRun.objects.using(using).filter(event=event, number=before + 1)
        ends = list(runs.values_list("finished_at", flat=True))
        if None in ends:
            runs.filter(finished_at__isnull=True)._raw_delete(using)
        if any(ends):
            WebhookEvent.objects.using(using).filter(pk=event.pk).update(**tried)

    try:
        finish(event, claim.token, changes, also=keep)
    except LeaseLost:
        return False
    finally:
        release(lease_store(), event.dedupe_key, claim.token)
    return True
