"""What a delivery comes to that meets an event which is there already."""

from __future__ import annotations

from .. import ledger
from ..enums import Outcome
from ..models import WebhookEvent
from .work import Result, Work


def meet(event: WebhookEvent, stored: WebhookEvent, work: Work) -> Result | None:
    """What a delivery comes to when its event is stored; None if the event may still run."""
    report = work.report
    if stored.dedupe_key != event.dedupe_key:
        report.note = f"event {stored.pk} came first, with the same secondary key"
    else:
        # Without a digest: what an API gave out is not spelled as the webhook would be.
        digests = {stored.body_digest, event.body_digest} - {""}
        report.conflict = len(digests) > 1
    return Result(Outcome.DUPLICATE, stored) if stored.is_finished else None


def meet_twin(twin: int, work: Work) -> Result | None:
    """What a new event comes to whose body came before, under another id that is not signed.

    None if it may run: then its delivery is marked.
    """
    work.report.conflict = True
    work.report.note = f"same body as event {twin}, under another id"
    if work.provider.same_body != "refuse":
        return None
    events = WebhookEvent.objects.using(ledger.alias()).defer("body", "response_body")
    return Result(Outcome.REJECTED, events.filter(pk=twin).first())
