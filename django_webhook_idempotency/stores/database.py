"""Leases in the event's own row."""

from __future__ import annotations

from datetime import timedelta

from django.core.checks import CheckMessage
from django.db import router
from django.utils import timezone

from ..enums import EventStatus
from ..models import WebhookEvent
from .base import LeaseStore


class DatabaseStore:
    """The row is the lease: it is taken by the insert or the update that claims the event."""

    exclusive = False

    def acquire(self, key: str, token: str, lease: timedelta) -> bool:
        """Always true: the ledger's conditional update of the row decides."""
        return True

    def renew(self, key: str, token: str, lease: timedelta) -> bool:
        """Move the row's expiry if the row still carries the token."""
        alias = router.db_for_write(WebhookEvent)
        renewed = WebhookEvent.objects.using(alias).filter(
            dedupe_key=key, lease_token=token, status=EventStatus.PROCESSING
        )
        until = timezone.now() + lease
        return renewed.update(lease_expires_at=until, next_attempt_at=until) == 1

    def release(self, key: str, token: str) -> None:
        """Nothing to do: a finish clears the row's lease."""

    def check(self) -> list[CheckMessage]:
        """Nothing can be wrong beyond what Django checks of the database."""
        return []


class RowAndStore(DatabaseStore):
    """A lease that another store decides on, kept in the event's row as well.

    The row says to the other workers when they may look again.
    """

    def __init__(self, store: LeaseStore) -> None:
        self.store = store
        self.exclusive = store.exclusive

    def renew(self, key: str, token: str, lease: timedelta) -> bool:
        """Renew both; False if either is lost."""
        return super().renew(key, token, lease) and self.store.renew(key, token, lease)

    def release(self, key: str, token: str) -> None:
        """Give the store's back; a finish clears the row's."""
        self.store.release(key, token)
