"""How far a source was looked through, and who looks through it now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet
from django.utils import timezone

from .. import ledger
from ..dispatch.heartbeat import heartbeat
from ..models import RecoveryCursor
from .base import SourceError
from .moments import aware, stored

#: How long a run holds a source without a word; it says one with each batch and each event.
LEASE = timedelta(minutes=15)
#: Seconds that a run holds a source while it waits for the next batch: one that hangs ends so.
LONGEST_WAIT = 7200.0


class Taken(SourceError):
    """Another run looks through the source now, or has taken it over."""

    def __init__(self) -> None:
        super().__init__("Another run is at work on it.")


def position(name: str) -> datetime | None:
    """Until when everything that a source sent is settled; None if nobody has looked yet."""
    rows = RecoveryCursor.objects.using(ledger.alias()).filter(source=name)
    return aware(rows.values_list("settled_until", flat=True).first())


class CursorLease:
    """The right to look through a source, and to move its cursor."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.token = ledger.new_token()

    def take(self, first: datetime) -> None:
        """Take the source; `first` is where a new cursor stands. Raises Taken."""
        rows = RecoveryCursor.objects.using(ledger.alias())
        rows.get_or_create(source=self.name, defaults={"settled_until": stored(first)})
        now = timezone.now()
        free = rows.filter(source=self.name).filter(
            Q(lease_token="") | Q(lease_expires_at__isnull=True) | Q(lease_expires_at__lte=now)
        )
        if not free.update(lease_token=self.token, lease_expires_at=now + LEASE):
            raise Taken

    def renew(self) -> None:
        """Hold the source for longer. Raises Taken if the lease ran out and another run has it."""
        if not self._mine().update(lease_expires_at=timezone.now() + LEASE):
            raise Taken

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Hold the source while its provider is asked: a list may take longer than the lease."""
        with heartbeat(_Waiting(), self.name, self.token, LEASE):
            yield

    def move(self, until: datetime) -> None:
        """Let the cursor stand where everything before it is settled. Raises Taken."""
        now = timezone.now()
        if not self._mine().update(settled_until=stored(until), updated_at=now):
            raise Taken

    def release(self) -> None:
        """Let the next run have the source."""
        self._mine().update(lease_token="", lease_expires_at=None)

    def _mine(self) -> QuerySet[RecoveryCursor]:
        return held(self.name, self.token)


def held(name: str, token: str) -> QuerySet[RecoveryCursor]:
    """The row of a source, if the token holds it."""
    rows = RecoveryCursor.objects.using(ledger.alias())
    return rows.filter(source=name, lease_token=token)


class _Waiting:
    """Renews the lease of a run that waits for its provider, for so long as that is believed."""

    def __init__(self) -> None:
        self.ends_at = time.monotonic() + LONGEST_WAIT

    def renew(self, key: str, token: str, lease: timedelta) -> bool:
        """Hold the source for longer; False if another run has it."""
        if time.monotonic() > self.ends_at:
            return True  # it runs out by itself, unless the provider answers
        return bool(held(key, token).update(lease_expires_at=timezone.now() + lease))
