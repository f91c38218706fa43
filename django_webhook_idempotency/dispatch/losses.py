"""Attempts that never came back: the worker was killed, or stalled, while a handler ran.

A run without an end is such a loss, and counts against its handler as a failed run does. Where
several handlers have an order, each run is written down before it starts. Everywhere else the
rows of those that have ended tell which one was next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from django.db.models import QuerySet
from django.utils import timezone

from .. import ledger
from ..exceptions import WebhookError
from ..handlers import Handler
from ..models import HandlerRun, WebhookEvent
from .runs import insist
from .transitions import Record
from .work import Work


class WorkerLost(WebhookError):
    """The process that ran an event ended or stalled while its handler ran."""


def notes_starts(work: Work) -> bool:
    """Whether runs are written down before they start: some handlers may have to wait or rest."""
    return work.is_ordered and len(work.handlers) > 1


def runs_of(event: WebhookEvent, handler: str, number: int) -> QuerySet[HandlerRun]:
    """The rows of a run: of its start, or of its end."""
    runs = HandlerRun.objects.using(ledger.alias())
    return runs.filter(event=event, handler=handler, number=number)


def note_start(
    event: WebhookEvent,
    handler: Handler,
    number: int,
    *,
    error: str = "",
    fence: Callable[[], None] = lambda: None,
) -> None:
    """Write down that a run starts, or with an error that it must have and never ended.

    Raises what the `fence` raises, and then nothing is written.
    """
    using = ledger.alias()
    run = HandlerRun(
        event=event,
        handler=handler.stored_name,
        number=number,
        started_at=timezone.now(),
        error_class=error,
    )

    def write() -> None:
        run.pk = None
        with ledger.own_transaction(using):
            run.save(force_insert=True, using=using)
            fence()

    insist(using, write)


def in_turn(handlers: Iterable[Handler], past: Mapping[str, Record]) -> list[Handler]:
    """The handlers in the order in which they are called: who ended workers before comes last."""
    return sorted(handlers, key=lambda each: len(past[each.stored_name].lost))


def charge(
    event: WebhookEvent, work: Work, handlers: Iterable[Handler], past: Mapping[str, Record]
) -> None:
    """Hold each attempt that was lost against a handler, and write that down.

    Before anything reads the payload, which may be what ends the process. `handlers` are in the
    order in which the first attempt calls them.
    """
    handlers = list(handlers)
    lost = WorkerLost.__name__
    if any(record.lost for record in past.values()):
        runs = HandlerRun.objects.using(ledger.alias()).filter(event=event, finished_at=None)
        runs.update(error_class=lost)
    for number in range(event.forgiven + 1, event.attempts):
        if any(number in record.lost for record in past.values()):
            continue
        has_runs = any(number in record.numbers for record in past.values())
        if has_runs and (number < event.attempts - 1 or notes_starts(work)):
            continue  # it came to its end, or was lost between two handlers
        for handler in in_turn(handlers, past):
            record = past[handler.stored_name]
            is_over = record.is_done or record.has_given_up(handler, work.provider)
            if not is_over and number not in record.numbers:
                note_start(event, handler, number, error=lost)
                record.lost.add(number)
                record.numbers.add(number)
                break
