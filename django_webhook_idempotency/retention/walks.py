"""Which rows go, and how a range of them is removed.

What goes, goes without `pre_delete` and `post_delete` signals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.db import connections
from django.db.models import DO_NOTHING, PROTECT, RESTRICT, Exists, OuterRef, Q, QuerySet

from ..enums import UNFINISHED
from ..models import (
    HandlerRun,
    HandlerStep,
    HandlerTurn,
    OrderingKey,
    Replay,
    WebhookDelivery,
    WebhookEvent,
)
from ..querysets import WebhookEventQuerySet
from .policies import Policy


class Kind(StrEnum):
    """What a purge removes."""

    KEYS = "keys"
    BODIES = "bodies"
    DELIVERIES = "deliveries"
    RUNS = "runs"
    ORDERING = "ordering"
    QUARANTINE = "quarantine"


class Walk(ABC):
    """One provider's rows of one table, and which of them go."""

    kind: Kind
    #: Which time of the policy counts, if not the one of that name.
    retention = ""

    def __init__(self, policy: Policy, using: str) -> None:
        self.policy = policy
        self.using = using
        self.cutoff: datetime = getattr(policy, self.retention or self.kind)

    @property
    def events(self) -> WebhookEventQuerySet:
        """The provider's events."""
        return WebhookEvent.objects.using(self.using).filter(provider=self.policy.provider)

    @property
    def rows(self) -> QuerySet[Any]:
        """All rows that the walk passes."""
        return self.events

    @property
    def aged(self) -> QuerySet[Any]:
        """The rows of the whole table, of all providers, that are older than the cutoff."""
        rows: QuerySet[Any] = self.rows.model._base_manager.using(self.using)
        return rows.filter(received_at__lt=self.cutoff)

    @property
    @abstractmethod
    def old(self) -> QuerySet[Any]:
        """The rows that may go."""

    @abstractmethod
    def count(self) -> Counter[Kind]:
        """How many rows would go now."""

    @abstractmethod
    def purge(self, part: QuerySet[Any]) -> Counter[Kind]:
        """Remove a part of the old rows, inside of a transaction."""

    def finish(self) -> Counter[Kind]:
        """Tidy up after the last range."""
        return Counter()


class Deliveries(Walk):
    """Deliveries, with or without an event; those of an unfinished event stay."""

    kind = Kind.DELIVERIES

    @property
    def rows(self) -> QuerySet[Any]:
        """The provider's deliveries."""
        return WebhookDelivery.objects.using(self.using).filter(provider=self.policy.provider)

    @property
    def old(self) -> QuerySet[Any]:
        """Those received before the cutoff."""
        return self.rows.filter(received_at__lt=self.cutoff)

    def count(self) -> Counter[Kind]:
        """Those that go by their own age, and those that go along with their event."""
        kept = self.old.filter(event__status__in=UNFINISHED)
        along = WebhookDelivery.objects.using(self.using).filter(
            event__in=Keys(self.policy, self.using).old, received_at__gte=self.cutoff
        )
        return Counter({self.kind: self.old.count() - kept.count() + along.count()})

    def purge(self, part: QuerySet[Any]) -> Counter[Kind]:
        """Delete the range but for what belongs to an unfinished event."""
        # Read first: in the DELETE, MariaDB would lock the event rows that it looks at.
        kept = list(part.filter(event__status__in=UNFINISHED).values_list("pk", flat=True))
        return Counter({self.kind: part.exclude(pk__in=kept)._raw_delete(self.using)})


class Keys(Walk):
    """Finished events, and what belongs to them."""

    kind = Kind.KEYS

    def __init__(self, policy: Policy, using: str) -> None:
        super().__init__(policy, using)
        self.first: int | None = None
        self.last = 0

    @property
    def old(self) -> QuerySet[Any]:
        """Those that no row of the project's own protects."""
        old = self.events.finished().filter(received_at__lt=self.cutoff)
        for relation in _own_relations():
            if relation.on_delete in (PROTECT, RESTRICT, DO_NOTHING):
                holders = relation.related_model._base_manager.using(self.using)
                old = old.filter(~Exists(holders.filter(**{relation.field.name: OuterRef("pk")})))
        return old

    def count(self) -> Counter[Kind]:
        """Events, their runs and steps; `Deliveries` counts the deliveries."""
        runs = HandlerRun.objects.using(self.using).filter(event__in=self.old)
        steps = HandlerStep.objects.using(self.using).filter(event__in=self.old)
        return Counter({self.kind: self.old.count(), Kind.RUNS: runs.count() + steps.count()})

    def purge(self, part: QuerySet[Any]) -> Counter[Kind]:
        """Delete events that nobody is at work on, and first what belongs to them."""
        going = _lock(part, self.using)
        if not going:
            return Counter()
        self.first = self.first or going[0]
        self.last = going[-1]
        self._belonging(HandlerTurn.objects.all(), going)
        self._belonging(Replay.objects.all(), going)
        steps = self._belonging(HandlerStep.objects.all(), going)
        removed = Counter(
            {
                Kind.RUNS: self._belonging(HandlerRun.objects.all(), going) + steps,
                Kind.DELIVERIES: self._belonging(WebhookDelivery.objects.all(), going),
                Kind.KEYS: len(going),
            }
        )
        events = WebhookEvent.objects.using(self.using).filter(pk__in=going)
        if _own_relations():
            events.delete()
        else:
            events._raw_delete(self.using)
        return removed

    def finish(self) -> Counter[Kind]:
        """Delete the deliveries of copies that came in just while their event went."""
        if self.first is None:
            return Counter()
        deliveries = WebhookDelivery.objects.using(self.using)
        orphans = deliveries.filter(event__isnull=False).filter(
            ~Exists(WebhookEvent.objects.filter(pk=OuterRef("event"))),
            event__gte=self.first,
            event__lte=self.last,
        )
        found = list(orphans.values_list("pk", flat=True))
        if not found:
            return Counter()
        return Counter({Kind.DELIVERIES: deliveries.filter(pk__in=found)._raw_delete(self.using)})

    def _belonging(self, rows: QuerySet[Any], going: list[int]) -> int:
        """Delete what belongs to the events; most have nothing left, and then it costs a look."""
        rows = rows.using(self.using)
        near = rows.filter(event__gte=going[0], event__lte=going[-1])
        owners = set(near.values_list("event", flat=True)).intersection(going)
        if not owners:
            return 0
        removed: int = rows.filter(event__in=owners)._raw_delete(self.using)
        return removed


class Bodies(Walk):
    """What finished events still hold of their payload and answer."""

    kind = Kind.BODIES

    @property
    def old(self) -> QuerySet[Any]:
        """Those that have something to drop."""
        held = Q(body__isnull=False) | Q(response_body__isnull=False)
        return self.events.finished().filter(held, received_at__lt=self.cutoff)

    def count(self) -> Counter[Kind]:
        """Those whose key stays; the others' bodies go with it."""
        going = self.old & Keys(self.policy, self.using).old
        return Counter({self.kind: self.old.count() - going.count()})

    def purge(self, part: QuerySet[Any]) -> Counter[Kind]:
        """Empty the events of the range that nobody is at work on."""
        events = WebhookEvent.objects.using(self.using).filter(pk__in=_lock(part, self.using))
        return Counter({self.kind: events.update(body=None, response_body=None)})


class Ordering(Walk):
    """Ordering keys whose newest event is so old that its own key may go."""

    kind = Kind.ORDERING
    retention = Kind.KEYS

    @property
    def rows(self) -> QuerySet[Any]:
        """The provider's ordering keys."""
        return OrderingKey.objects.using(self.using).filter(provider=self.policy.provider)

    @property
    def aged(self) -> QuerySet[Any]:
        """Those of the provider alone, which the index leads to."""
        return self.rows.filter(updated_at__lt=self.cutoff)

    @property
    def old(self) -> QuerySet[Any]:
        """Those that no event waits for."""
        turns = HandlerTurn.objects.using(self.using).filter(key=OuterRef("key"))
        return self.aged.filter(~Exists(turns))

    def count(self) -> Counter[Kind]:
        """How many would go now."""
        return Counter({self.kind: self.old.count()})

    def purge(self, part: QuerySet[Any]) -> Counter[Kind]:
        """Delete those of the range that nobody locks."""
        going = OrderingKey.objects.using(self.using).filter(pk__in=_lock(part, self.using))
        return Counter({self.kind: going._raw_delete(self.using)})


def _lock(rows: QuerySet[Any], using: str) -> list[int]:
    """Lock the rows that nobody else has locked, and return their ids in order."""
    features = connections[using].features
    if features.has_select_for_update:
        rows = rows.select_for_update(skip_locked=features.has_select_for_update_skip_locked)
    return list(rows.order_by("pk").values_list("pk", flat=True))


def _own_relations() -> list[Any]:
    """The project's own foreign keys to an event; only they need Django's slower delete."""
    ours = (WebhookDelivery, HandlerRun, HandlerStep, HandlerTurn, Replay)
    return [
        field
        for field in WebhookEvent._meta.get_fields(include_hidden=True)
        if field.auto_created and not field.concrete and field.related_model not in ours
    ]
