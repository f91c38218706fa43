"""Note which secret verified a delivery, and when; at most once a minute, never in the way."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from django.db import Error as AnyDatabaseError

from .. import ledger
from ..models import SecretUse

logger = logging.getLogger("django_webhook_idempotency")

#: Seconds between two notes of one secret by one process.
EVERY = 60.0
#: Seconds that a note waits for SQLite's lock: the next delivery does as well.
PATIENCE = 0.1


class Notes:
    """When this process last noted each secret."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: dict[tuple[str, str], float] = {}

    @contextmanager
    def turn(self, provider: str, fingerprint: str) -> Iterator[bool]:
        """Whether it is time for a note; what raises is to be tried again by the next delivery."""
        secret, now = (provider, fingerprint), time.monotonic()
        before = self._noted.get(secret)
        if before is not None and now - before < EVERY:
            yield False
            return
        with self._lock:
            if self._noted.get(secret) != before:
                due = False
            else:
                due, self._noted[secret] = True, now
        try:
            yield due
        except BaseException:
            if due:
                self._noted.pop(secret, None)
            raise

    def forget(self) -> None:
        """Start again, as a new process does."""
        with self._lock:
            self._noted.clear()


notes = Notes()


def note_use(provider: str, fingerprint: str, at: datetime) -> None:
    """Note that a delivery was verified by a secret; without one for providers that sign nothing.

    A database that fails here is logged, not raised.
    """
    try:
        with notes.turn(provider, fingerprint) as due:
            if due:
                with ledger.bounded_lock_wait(ledger.alias(), PATIENCE):
                    write_use(provider, fingerprint, at)
    except AnyDatabaseError as error:
        logger.warning("webhook use of a secret not noted: %s", type(error).__name__)


def write_use(provider: str, fingerprint: str, at: datetime) -> None:
    """Move the time of a secret's last use on to `at`. Raises the database's own error."""
    uses = SecretUse.objects.using(ledger.alias())
    mine = uses.filter(provider=provider, fingerprint=fingerprint)
    if mine.filter(last_used_at__lt=at).update(last_used_at=at) or mine.exists():
        return
    use = SecretUse(provider=provider, fingerprint=fingerprint, first_used_at=at, last_used_at=at)
    # Another process may be quicker by a moment, which does not matter.
    uses.bulk_create([use], ignore_conflicts=True)
