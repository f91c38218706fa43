"""Run an event here: from the body that is stored, or from the one that a source gave out."""

from __future__ import annotations

from django.utils import timezone

from .. import ledger
from ..dispatch.deliveries import record
from ..dispatch.intake import deliver, new_event, with_secondary
from ..dispatch.resolving import work_of
from ..dispatch.run_log import announce_run, log_run, word
from ..dispatch.runs import HandlerLeft
from ..dispatch.work import DeliveryReport, Result, Work
from ..enums import EventStatus, Origin
from ..exceptions import HandlerMissing
from ..models import HandlerRun, WebhookEvent
from ..providers import Incoming, Provider
from .base import Sent

#: What a copy has in common with the stored event that it is made from.
_COPIED = (
    "provider",
    "scope",
    "event_id",
    "dedupe_key",
    "secondary_key",
    "content_key",
    "event_type",
    "body",
    "body_digest",
    "content_type",
    "received_at",
    "view",
)


def is_left_to_others(event: WebhookEvent) -> bool:
    """Whether a worker or whoever holds an unfinished event will go on with it.

    What failed in the request goes on when its back-off is over: by a worker if there is one.
    """
    if event.status == EventStatus.PROCESSING and not event.lease_has_expired:
        return True
    if event.lane is None:
        return False
    waits = event.next_attempt_at is not None and event.next_attempt_at > timezone.now()
    return event.enqueued_at is not None or waits


def is_finished(key: str) -> bool:
    """Whether an event is finished by now."""
    events = WebhookEvent.objects.using(ledger.alias())
    return events.filter(dedupe_key=key).finished().exists()


def run_again(pk: int) -> Result | None:
    """Do with an unfinished event what a redelivery of its stored body would do.

    None if only a request can run it. Raises what stands in the way.
    """
    stored = WebhookEvent.objects.using(ledger.alias()).get(pk=pk)
    copy = WebhookEvent(**{name: getattr(stored, name) for name in _COPIED})
    copy.status = EventStatus.PENDING
    try:
        work = work_of(copy)
    except HandlerMissing:
        # A decorated view has failed on it, or its handler is gone: nothing here can tell which.
        return None
    if stored.body is None or _needs_request(stored, work):
        return None
    return _deliver(copy, work)


def ingest(sent: Sent, body: bytes, provider: Provider, view: str) -> Result | None:
    """Deliver an event that a source gave out; None if no handler wants it.

    Raises what stands in the way.
    """
    incoming = Incoming.stored(body, sent.content_type)
    event = new_event(
        provider,
        incoming,
        with_secondary(sent.identity, provider, incoming),
        scope=sent.scope,
        content_type=sent.content_type,
        body_digest="",
        received_at=timezone.now(),
    )
    event.view = view
    try:
        work = work_of(event)
    except HandlerMissing:
        return None
    return _deliver(event, work)


def _needs_request(stored: WebhookEvent, work: Work) -> bool:
    """Whether an event stems from a view that reads the request itself.

    Without a lane it does; but a dead one has none either, and is known by who ran it.
    """
    if stored.status != EventStatus.DEAD:
        return stored.lane is None
    runs = HandlerRun.objects.using(ledger.alias()).filter(event=stored.pk)
    names = {handler.stored_name for handler in work.handlers}
    return bool(set(runs.values_list("handler", flat=True)) - names)


def _deliver(event: WebhookEvent, work: Work) -> Result:
    """Deliver, write the delivery's row, and tell the log and the signals.

    Raises HandlerLeft where a handler exits: a run of its events is more than that one.
    """
    started_at = timezone.now()
    work.report = DeliveryReport(
        work.provider, origin=Origin.RECOVERED, body_digest=event.body_digest
    )
    try:
        result = deliver(event, work)
    except SystemExit as error:
        raise HandlerLeft(f"The handler of {word(event.event_id)} raised SystemExit.") from error
    if not result.recorded and not result.unproven:
        work.settle(result)
        record(work.report, result.event)
    about = result.event or event
    log_run(about, result, started_at)
    announce_run(about, result)
    return result
