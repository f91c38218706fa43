"""Compare what the providers know with what is in the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields

from django_webhook_idempotency.enums import EventStatus, Outcome
from django_webhook_idempotency.models import HandlerRun, WebhookDelivery, WebhookEvent
from example_project.shop.models import LedgerEntry

from .events import PROVIDERS, Event
from .sender import SentLedger


@dataclass(frozen=True)
class Count:
    """One line of the table: what came of the events of a provider, or of all of them."""

    #: Requests that the provider sent, and the events that they carried.
    sent: int = 0
    events: int = 0
    #: Ledger entries of the shop.
    effects: int = 0
    #: Deliveries that were recognised as copies.
    duplicates: int = 0
    #: Events that a handler failed on, or in whose handler a worker died, and that are processed.
    recovered: int = 0
    #: Events without an effect, and events with more than one.
    lost: int = 0
    doubled: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            *(getattr(self, each.name) + getattr(other, each.name) for each in fields(Count))
        )


def count(sent: SentLedger, events: dict[str, list[Event]]) -> dict[str, Count]:
    """One `Count` for each provider, read from the database and the sender's ledger."""
    return {
        provider: _count(provider, sent, {event.event_id for event in events.get(provider, ())})
        for provider in PROVIDERS
    }


def _count(provider: str, sent: SentLedger, events: set[str]) -> Count:
    entries = LedgerEntry.objects.filter(provider=provider)
    effects = Counter(entries.values_list("event_id", flat=True))
    failed = HandlerRun.objects.exclude(error_class="").filter(event__provider=provider)
    troubled = set(failed.values_list("event__event_id", flat=True))
    troubled |= {event.event_id for event in sent.killed if event.provider == provider}
    processed = WebhookEvent.objects.filter(provider=provider, status=EventStatus.PROCESSED)
    duplicates = WebhookDelivery.objects.filter(provider=provider, outcome=Outcome.DUPLICATE)
    return Count(
        sent=sum(attempt.event.provider == provider for attempt in sent.attempts),
        events=len(events),
        effects=effects.total(),
        duplicates=duplicates.count(),
        recovered=len(troubled.intersection(processed.values_list("event_id", flat=True))),
        lost=sum(effects[event_id] == 0 for event_id in events),
        doubled=sum(number > 1 for number in effects.values()),
    )


def problems(counts: Iterable[Count], sent: SentLedger) -> list[str]:
    """What is wrong, in a sentence each; nothing if every event took effect exactly once.

    A run in which nothing went wrong on the way proves nothing, so that is wrong too.
    """
    total = sum(counts, Count())
    processed = WebhookEvent.objects.filter(status=EventStatus.PROCESSED).count()
    stored = WebhookEvent.objects.count()
    wrong = {
        "No event was sent.": not total.events,
        f"{total.lost} events are lost.": total.lost,
        f"{total.doubled} events took effect more than once.": total.doubled,
        f"{total.events} events had {total.effects} effects.": total.effects != total.events,
        f"{stored} events are stored, not {total.events}.": stored != total.events,
        f"{stored - processed} events are not processed.": stored != processed,
        f"{len(sent.given_up)} deliveries were never acknowledged.": sent.given_up,
        "No copy was recognised as one.": not total.duplicates,
        "No worker was killed in the middle of a handler.": not sent.killed,
        "No failed event recovered.": total.recovered <= len(sent.killed),
    }
    return [sentence for sentence, holds in wrong.items() if holds]
