"""The filters that read, and the locks that decide."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from django.db import DatabaseError, connections, models
from django.db.models import Q

from .enums import FINISHED, UNFINISHED, EventStatus
from .inserts import Inserted, insert_once, is_locked

if TYPE_CHECKING:
    from .models import WebhookDelivery, WebhookEvent


class WebhookEventQuerySet(models.QuerySet["WebhookEvent"]):
    """Events by what can be done with them."""

    def finished(self) -> WebhookEventQuerySet:
        """Events whose copies are duplicates."""
        return self.filter(status__in=FINISHED)

    def unfinished(self) -> WebhookEventQuerySet:
        """Events that may still run."""
        return self.filter(status__in=UNFINISHED)

    def free(self, now: datetime) -> WebhookEventQuerySet:
        """Unfinished events that nobody holds a live lease on."""
        return self.unfinished().filter(
            ~Q(status=EventStatus.PROCESSING)
            | Q(lease_expires_at__isnull=True)
            | Q(lease_expires_at__lte=now)
        )

    def due(self, now: datetime) -> WebhookEventQuerySet:
        """Events that a worker may run now: new ones, retries, and those whose lease ran out."""
        return self.filter(lane__isnull=False, next_attempt_at__lte=now)

    def held_by(self, pk: int, token: str) -> WebhookEventQuerySet:
        """The event `pk` if its claim still carries `token`: the fence before each finish."""
        return self.filter(pk=pk, lease_token=token, status=EventStatus.PROCESSING)

    def same(self, dedupe_key: str, secondary_key: str | None) -> WebhookEventQuerySet:
        """The event that a delivery is about."""
        matches = Q(dedupe_key=dedupe_key)
        if secondary_key:
            matches |= Q(secondary_key=secondary_key)
        return self.filter(matches)

    def lock(self, pk: int) -> WebhookEvent | None:
        """Lock an event until the transaction ends.

        Returns None if another transaction holds it or it is gone. Never waits for the holder.
        """
        connection = connections[self.db]
        if not connection.features.has_select_for_update:
            # SQLite has one lock, for writing; the empty update takes it before the row is read.
            self.filter(pk=pk).update(attempts=models.F("attempts"))
            return self.filter(pk=pk).first()
        locked = self.select_for_update(nowait=True)
        if connection.features.has_select_for_no_key_update:
            locked = self.select_for_update(nowait=True, no_key=True)
        try:
            return locked.filter(pk=pk).first()
        except DatabaseError as error:
            if is_locked(error):
                return None
            raise

    def insert_once(self, event: WebhookEvent, *, find_twin: bool = False) -> Inserted:
        """Insert `event` unless its key is taken, in one statement that doesn't wait.

        With `find_twin`, the same statement looks for an older event with the same content under
        another id.

        Only a conflict on the unique keys is silent; every other error is raised. A row that
        somebody inserts in a transaction that is still open counts as taken.
        """
        inserted = insert_once(connections[self.db], event, find_twin=find_twin)
        if inserted.won:
            event.pk = inserted.pk
            event._state.adding = False
            event._state.db = self.db
        return inserted


class WebhookDeliveryQuerySet(models.QuerySet["WebhookDelivery"]):
    """Deliveries, and the bound on those that strangers cause."""

    def insert_bounded(self, delivery: WebhookDelivery, limit: int) -> None:
        """Store a delivery that proved nothing, keeping the newest `limit` of its kind.

        The kind is the provider and outcome. With a limit of zero nothing is stored.
        """
        if limit <= 0:
            return
        delivery.save(force_insert=True, using=self.db)
        kind = self.filter(provider=delivery.provider, outcome=delivery.outcome)
        oldest = kind.order_by("-pk").values_list("pk", flat=True)[limit : limit + 1]
        for pk in oldest:
            kind.filter(pk__lte=pk)._raw_delete(self.db)
