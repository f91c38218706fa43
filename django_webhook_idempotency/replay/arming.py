"""Let one event run again: a single transaction that decides, writes down who and why, and arms."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from django.db import DatabaseError, models, transaction
from django.utils import timezone

from .. import ledger
from ..dispatch.engines import tell
from ..dispatch.places import end_rest
from ..dispatch.run_log import word
from ..dispatch.runs import retried
from ..dispatch.transitions import records
from ..dispatch.work import Work
from ..enums import FINISHED, EventStatus
from ..handlers import MAX_NAME
from ..inserts import is_locked
from ..models import HandlerRun, HandlerStep, Replay, WebhookEvent, displayable
from .refusals import Refusal, Refused, out_of_reach, refuse_change, work_for

logger = logging.getLogger("django_webhook_idempotency")

#: What the columns of a replay have room for.
MAX_BY, MAX_REASON = 150, 255


@dataclass(frozen=True)
class Request:
    """Who lets events run again, and why; with a `handler`, that one and none of the others.

    Raises ValueError if nobody or nothing is named.
    """

    by: str
    reason: str
    handler: str = ""

    def __post_init__(self) -> None:
        for name, text, room in (("by", self.by, MAX_BY), ("reason", self.reason, MAX_REASON)):
            if not text.strip():
                raise ValueError(f"A replay wants to know {name}=, which is blank.")
            if len(text) > room:
                raise ValueError(f"{name}= takes {len(text)} characters; {room} are kept.")


@dataclass(frozen=True)
class Armed:
    """An event that is due again. Whatever runs it has a number above `after`."""

    pk: int
    lane: str
    after: int
    handler: str
    #: Whether the workers run it; if not, whoever armed it does.
    queued: bool


def arm(seen: WebhookEvent, request: Request) -> Armed:
    """Make an event due again, if it is as the caller has seen it and nobody runs it.

    Nothing that runs, and no second replay, can come in between: the row is locked. Raises
    Refused, StoreUnavailable, or the database's own error.
    """
    try:
        found = retried(partial(_arm, seen, request))
    except DatabaseError as error:
        if not is_locked(error):
            raise
        raise Refused(Refusal.RUNNING, "Somebody has locked it. Try again later.") from error
    if found is None:
        raise out_of_reach(seen)
    event, armed = found
    logger.info(
        "webhook replay provider=%s event=%s type=%s status_before=%s handler=%s by=%s reason=%s",
        event.provider,
        word(event.event_id),
        word(event.event_type),
        seen.status,
        word(armed.handler),
        word(request.by),
        json.dumps(request.reason),
    )
    return armed


def _arm(seen: WebhookEvent, request: Request) -> tuple[WebhookEvent, Armed] | None:
    """As `arm`; None if it could not be locked: a broken transaction cannot ask why."""
    using = ledger.alias()
    with ledger.own_transaction(using):
        event = WebhookEvent.objects.using(using).lock(seen.pk)
        if event is None:
            transaction.set_rollback(True, using=using)
            return None
        refuse_change(event, seen)
        handler = request.handler[:MAX_NAME]
        work = work_for(event, handler)
        # An attempt more than there were, if there were none: the first of all looks for nothing
        # that was before it.
        attempts = max(event.attempts, 1) if handler else event.attempts
        _write_sole_run(event)
        _forget_steps(event, work, handler)
        _write_replay(event, request, attempts)
        now = timezone.now()
        changes = {
            "status": EventStatus.PENDING,
            "attempts": attempts,
            "forgiven": attempts,
            "lane": work.lane,
            "next_attempt_at": now,
            "enqueued_at": now,
            "processed_at": None,
            "handled_by": "",
        }
        ledger.write_finish(event, "", changes)
        if work.is_ordered and not handler:
            end_rest(event, using)
        queued = work.provider.processing == "queued"
        if queued:
            transaction.on_commit(partial(tell, event.pk), using=using)
    return event, Armed(event.pk, work.provider.key, attempts, handler, queued)


def _write_sole_run(event: WebhookEvent) -> None:
    """Give the run that has no row one, which the event's own row cannot stand for any longer.

    When it began nobody knows.
    """
    if event.status != EventStatus.PROCESSED or not event.handled_by:
        return
    runs = HandlerRun.objects.using(ledger.alias())
    if runs.filter(event=event).exists():
        return
    ended = event.processed_at or event.received_at
    runs.create(
        event=event,
        handler=event.handled_by,
        number=max(event.attempts, 1),
        started_at=ended,
        finished_at=ended,
    )


def _forget_steps(event: WebhookEvent, work: Work, handler: str) -> None:
    """Let those handlers do their steps anew that were through; a retry goes on after them."""
    steps = HandlerStep.objects.using(ledger.alias()).filter(event=event)
    if not handler:
        if event.status in FINISHED:
            steps._raw_delete(steps.db)
        return
    asked = [each for each in work.handlers if each.stored_name == handler]
    if records(event, asked)[handler].is_done:
        _delete_of(steps, {handler})


def _delete_of(steps: models.QuerySet[HandlerStep], names: Collection[str]) -> None:
    """Delete the steps of some handlers, whose names a collation may take for other ones."""
    mine = [pk for pk, name in steps.values_list("pk", "handler") if name in names]
    steps.filter(pk__in=mine)._raw_delete(steps.db)


def _write_replay(event: WebhookEvent, request: Request, attempts: int) -> None:
    """Write down who and why, and what of the past no longer counts."""
    is_finished = event.is_finished
    # What has succeeded stays so while the event is unfinished, unless it is asked for by name.
    forgets = is_finished or request.handler
    others_wait = request.handler and not is_finished and event.status != EventStatus.DEAD
    Replay.objects.using(ledger.alias()).create(
        event=event,
        handler=request.handler[:MAX_NAME],
        after=attempts if forgets else 0,
        requested_by=displayable(request.by, MAX_BY),
        reason=displayable(request.reason, MAX_REASON),
        status_before=event.status,
        others_at=event.next_attempt_at if others_wait else None,
        others_forgiven=event.forgiven if request.handler else 0,
    )
