"""What an event's page shows besides its own columns: bodies, deliveries, runs; all bounded."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from django.db.models import BinaryField
from django.db.models.functions import Length, Substr
from django.utils.translation import gettext

from ..enums import EventStatus
from ..exceptions import Superseded
from ..models import (
    HandlerRun,
    HandlerStep,
    QuarantinedDelivery,
    Replay,
    WebhookDelivery,
    WebhookEvent,
)
from .display import (
    NOTHING,
    badge,
    choice_badge,
    duration_text,
    retry_text,
    seconds_text,
    time_text,
)
from .links import row_link
from .payloads import READ_LIMIT, Payload, payload_of
from .sources import Source

#: The newest so many deliveries and runs are shown.
SHOWN = 100

Line = TypeVar("Line")


@dataclass(frozen=True)
class Lines(Generic[Line]):
    """The newest lines of a table, and whether there are more."""

    lines: list[Line] = field(default_factory=list)
    cut: bool = False

    @property
    def shown(self) -> int:
        """How many lines there are at most."""
        return SHOWN


@dataclass(frozen=True)
class DeliveryLine:
    """One delivery of the event, ready to be shown."""

    delivery: WebhookDelivery
    time: str
    outcome: str
    duration: str
    retry: str
    link: str

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers that were kept, by name."""
        return header_lines(self.delivery)


@dataclass(frozen=True)
class RunLine:
    """One run, ready to be shown."""

    handler: str
    number: int
    started: str
    duration: str
    result: str
    error: str = ""
    traceback: str = ""


@dataclass(frozen=True)
class StepLine:
    """One finished step, ready to be shown; its result may be a secret and stays where it is."""

    name: str
    handler: str
    finished: str


@dataclass(frozen=True)
class ReplayLine:
    """One replay of the event, ready to be shown."""

    requested: str
    by: str
    reason: str
    handler: str
    status_before: str


def header_lines(delivery: WebhookDelivery) -> list[tuple[str, str]]:
    """A delivery's kept headers by name; whatever else may be stored is left out."""
    headers = delivery.headers if isinstance(delivery.headers, dict) else {}
    return sorted((str(name), str(value)) for name, value in headers.items())


def bodies_of(event: WebhookEvent, source: Source) -> tuple[Payload, Payload | None]:
    """The payload, and the answer that is kept for copies if there is one.

    No more of a body leaves the database than is shown of it.
    """
    row = (
        WebhookEvent.objects.filter(pk=event.pk)
        .values_list(
            Length("body"),
            Substr("body", 1, READ_LIMIT, output_field=BinaryField()),
            Length("response_body"),
            Substr("response_body", 1, READ_LIMIT, output_field=BinaryField()),
        )
        .first()
    )
    size, head, answer_size, answer_head = row or (None, None, None, None)
    payload = payload_of(_bytes(head, size), size or 0, event.content_type, source)
    if event.response_status is None:
        return payload, None
    unknown = Source(source.slug, source.name)
    answer = payload_of(
        _bytes(answer_head, answer_size), answer_size or 0, event.response_content_type, unknown
    )
    return payload, answer


def kept_body_of(delivery: QuarantinedDelivery, source: Source) -> Payload:
    """The body of a quarantined delivery, of which no more is read than is shown."""
    row = (
        QuarantinedDelivery.objects.filter(pk=delivery.pk)
        .values_list(Length("body"), Substr("body", 1, READ_LIMIT, output_field=BinaryField()))
        .first()
    )
    size, head = row or (None, None)
    return payload_of(_bytes(head, size), size or 0, delivery.content_type, source)


def _bytes(start: bytes | memoryview | None, size: int | None) -> bytes | None:
    """The start of a body; SQLite has none of an empty one."""
    return None if size is None else bytes(start or b"")


def delivery_lines(event: WebhookEvent, deadline: float | None) -> Lines[DeliveryLine]:
    """The newest deliveries of an event."""
    rows = list(WebhookDelivery.objects.filter(event=event).order_by("-pk")[: SHOWN + 1])
    lines = [
        DeliveryLine(
            delivery=row,
            time=time_text(row.received_at),
            outcome=choice_badge(row.outcome, row.get_outcome_display()),
            duration=duration_text(row.duration, deadline),
            retry=retry_text(row.retry_number, row.retry_reason) or NOTHING,
            link=row_link(WebhookDelivery, row.pk),
        )
        for row in rows[:SHOWN]
    ]
    return Lines(lines, cut=len(rows) > SHOWN)


def run_lines(event: WebhookEvent) -> Lines[RunLine]:
    """The newest runs of an event's handlers, the one that has no row of its own included."""
    rows = list(HandlerRun.objects.filter(event=event).order_by("-pk")[: SHOWN + 1])
    lines = [_run_line(row) for row in rows[:SHOWN]]
    if not rows and event.handled_by and event.status == EventStatus.PROCESSED:
        lines = [_only_run(event)]
    return Lines(lines, cut=len(rows) > SHOWN)


def step_lines(event: WebhookEvent) -> Lines[StepLine]:
    """The newest finished steps of an event's handlers."""
    steps = HandlerStep.objects.filter(event=event).defer("result").order_by("-pk")
    rows = list(steps[: SHOWN + 1])
    lines = [StepLine(row.name, row.handler, time_text(row.finished_at)) for row in rows[:SHOWN]]
    return Lines(lines, cut=len(rows) > SHOWN)


def replay_lines(event: WebhookEvent) -> Lines[ReplayLine]:
    """The newest replays of an event."""
    rows = list(Replay.objects.filter(event=event).order_by("-pk")[: SHOWN + 1])
    lines = [
        ReplayLine(
            requested=time_text(row.requested_at),
            by=row.requested_by,
            reason=row.reason,
            handler=row.handler or gettext("all handlers"),
            status_before=_status_badge(row.status_before),
        )
        for row in rows[:SHOWN]
    ]
    return Lines(lines, cut=len(rows) > SHOWN)


def _status_badge(status: str) -> str:
    return choice_badge(status, str(dict(EventStatus.choices).get(status, status)))


def _only_run(event: WebhookEvent) -> RunLine:
    """The run of an event that its only handler processed at the first try."""
    return RunLine(
        handler=event.handled_by,
        number=1,
        started=time_text(event.processed_at),
        duration=NOTHING,
        result=badge(gettext("succeeded"), "good"),
    )


def _run_line(run: HandlerRun) -> RunLine:
    if run.succeeded:
        result = badge(gettext("succeeded"), "good")
    elif run.finished_at is None:
        result = badge(gettext("not finished"), "waiting")
    elif run.error_class == Superseded.__name__:
        result = badge(str(EventStatus.SUPERSEDED.label), "quiet")
    else:
        result = badge(gettext("failed"), "bad")
    return RunLine(
        handler=run.handler,
        number=run.number,
        started=time_text(run.started_at),
        duration=_lasted(run.started_at, run.finished_at),
        result=result,
        error=_error_of(run),
        traceback=run.traceback,
    )


def _error_of(run: HandlerRun) -> str:
    if run.error_class == Superseded.__name__:
        return ""
    return ": ".join(filter(None, [run.error_class, run.error_message]))


def _lasted(started: datetime, finished: datetime | None) -> str:
    if finished is None:
        return NOTHING
    return seconds_text(max((finished - started).total_seconds(), 0))
