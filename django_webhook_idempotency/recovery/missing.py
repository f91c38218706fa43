"""The events that were asked for: how often and when, until they are here or too old."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import F
from django.utils import timezone

from .. import ledger
from ..dispatch.intake import whole_scope
from ..dispatch.run_log import word
from ..models import MissingEvent, WebhookEvent, displayable
from .base import Sent
from .moments import stored

logger = logging.getLogger("django_webhook_idempotency")

#: How long an event is not asked for again after the first time; it doubles with each.
PAUSE = timedelta(minutes=10)
_MOST_DOUBLINGS = 10
#: Rows of one source that a run looks over.
LOOK = 1000


def rows_of(keys: Iterable[str]) -> dict[str, MissingEvent]:
    """What is remembered of some events, by dedupe key."""
    rows = MissingEvent.objects.using(ledger.alias()).filter(dedupe_key__in=list(keys))
    return {row.dedupe_key: row for row in rows}


def rests_until(row: MissingEvent) -> datetime | None:
    """When an event may be asked for again, as its columns count time."""
    if row.asked_at is None:
        return None
    doublings = min(max(row.attempts - 1, 0), _MOST_DOUBLINGS)
    return row.asked_at + PAUSE * int(2**doublings)


def rests(row: MissingEvent) -> bool:
    """Whether it is too early to ask for an event again."""
    until = rests_until(row)
    return until is not None and until > timezone.now()


def note(name: str, slug: str, key: str, sent: Sent, row: MissingEvent | None) -> MissingEvent:
    """Remember an event of a source that is missing, and until when its provider has it."""
    rows, leaves_at = MissingEvent.objects.using(ledger.alias()), stored(sent.leaves_at)
    if row is None:
        row, _ = rows.get_or_create(
            dedupe_key=key,
            defaults={
                "provider": slug,
                "source": name,
                "scope": displayable(whole_scope(sent.scope, sent.identity.scope)),
                "event_id": displayable(sent.identity.event_id),
                "event_type": displayable(sent.identity.event_type),
                "sent_at": stored(sent.sent_at),
                "leaves_at": leaves_at,
            },
        )
    if (row.leaves_at, row.source) != (leaves_at, name):
        rows.filter(pk=row.pk).update(leaves_at=leaves_at, source=name)
    return row


def claim(row: MissingEvent) -> bool:
    """Count an attempt before it is made; False if another run was faster."""
    rows = MissingEvent.objects.using(ledger.alias())
    mine = rows.filter(pk=row.pk, attempts=row.attempts, asked_at=row.asked_at)
    now = timezone.now()
    if not mine.update(attempts=F("attempts") + 1, asked_at=now):
        return False
    row.attempts, row.asked_at = row.attempts + 1, now
    return True


def give_back(row: MissingEvent) -> None:
    """Do not count an attempt that the API did not take; it may be made again at once."""
    rows = MissingEvent.objects.using(ledger.alias()).filter(pk=row.pk, attempts=row.attempts)
    rows.update(attempts=row.attempts - 1, asked_at=None)


def give_up(row: MissingEvent) -> None:
    """Ask for an event no more."""
    MissingEvent.objects.using(ledger.alias()).filter(pk=row.pk).update(given_up=True)
    logger.warning(
        "webhook event given up after %s attempts: source=%s event=%s",
        row.attempts,
        row.source,
        word(row.event_id),
    )


def begin_anew(row: MissingEvent) -> None:
    """Ask for an event as if for the first time."""
    row.attempts, row.asked_at, row.given_up = 0, None, False
    rows = MissingEvent.objects.using(ledger.alias()).filter(pk=row.pk)
    rows.update(attempts=0, asked_at=None, given_up=False)


def forget(keys: Iterable[str]) -> None:
    """Forget events that are here."""
    gone = list(keys)
    if gone:
        MissingEvent.objects.using(ledger.alias()).filter(dedupe_key__in=gone).delete()


def tidy(name: str) -> None:
    """Forget what of a source is here by now, or has left its provider's window."""
    rows = MissingEvent.objects.using(ledger.alias()).filter(source=name)
    keys = list(rows.order_by("pk").values_list("dedupe_key", flat=True)[:LOOK])
    events = WebhookEvent.objects.using(ledger.alias()).filter(dedupe_key__in=keys).finished()
    forget(events.values_list("dedupe_key", flat=True))
    lost = rows.filter(leaves_at__lte=timezone.now())
    for row in lost[:LOOK]:
        logger.error(
            "webhook event lost, its provider has it no longer: source=%s event=%s attempts=%s",
            row.source,
            word(row.event_id),
            row.attempts,
        )
        row.delete()


def given_up(name: str) -> list[MissingEvent]:
    """The events of a source that are given up and not here; at most so many as a run looks at."""
    rows = MissingEvent.objects.using(ledger.alias()).filter(source=name, given_up=True)
    return list(rows.order_by("pk")[:LOOK])
