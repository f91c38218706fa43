"""The threads of a worker that run claimed events, each with connections of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue

from django.db import connections, reset_queries
from django.utils import timezone

from .. import ledger
from ..enums import Outcome
from ..models import WebhookEvent
from .claims import Claim, lease_of
from .queued import run_claim

logger = logging.getLogger("django_webhook_idempotency")

#: Seconds after which a connection that nobody used is tried before an event depends on it.
IDLE = 1.0
#: Seconds that a thread without work has to end.
JOIN = 5.0


class Pool:
    """Runs claims side by side; nothing that a handler raises ends one of its threads.

    `changed` is called in a thread of the pool after each run.
    """

    def __init__(self, size: int, changed: Callable[[], None]) -> None:
        self.size = size
        self.runs = 0
        self.failures = 0
        self._changed = changed
        self._work: SimpleQueue[Claim | None] = SimpleQueue()
        self._condition = threading.Condition()
        #: Token to claim: what is waiting for its thread, or running.
        self._held: dict[str, Claim] = {}
        #: Claims whose end could not be written.
        self._unsettled: list[Claim] = []
        #: When somebody last had trouble with the database.
        self._trouble = float("-inf")
        self._threads = [
            threading.Thread(target=self._run_all, name=f"webhook-{number}", daemon=True)
            for number in range(1, size + 1)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, claim: Claim) -> None:
        """Let the next free thread run a claim."""
        with self._condition:
            self._held[claim.token] = claim
        self._work.put(claim)

    def held(self) -> list[Claim]:
        """The claims that have not ended."""
        with self._condition:
            return list(self._held.values())

    @property
    def is_busy(self) -> bool:
        """Whether a claim has not ended."""
        return bool(self._held)

    @property
    def is_alive(self) -> bool:
        """Whether all threads are there."""
        return all(thread.is_alive() for thread in self._threads)

    def wait_for_room(self, seconds: float) -> bool:
        """Wait until a thread is free; False if none is by then."""
        with self._condition:
            return self._condition.wait_for(lambda: len(self._held) < self.size, seconds)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until nothing runs; False if something still does."""
        with self._condition:
            return self._condition.wait_for(lambda: not self._held, seconds)

    def distrust(self) -> None:
        """Let each thread try its connection before the next run: the database was away."""
        self._trouble = time.monotonic()

    def settle(self) -> None:
        """Cut the leases short of runs whose end could not be written; the database is back."""
        with self._condition:
            unsettled, self._unsettled = self._unsettled, []
        for claim in unsettled:
            cut_short(claim)

    def close(self) -> None:
        """End the threads that have no work."""
        for _ in self._threads:
            self._work.put(None)
        if not self.is_busy:
            for thread in self._threads:
                thread.join(JOIN)

    def _run_all(self) -> None:
        used = time.monotonic()
        try:
            while (claim := self._work.get()) is not None:
                self._run(claim, suspicious=time.monotonic() - used > IDLE or self._trouble >= used)
                used = time.monotonic()
        finally:
            connections.close_all()

    def _run(self, claim: Claim, *, suspicious: bool) -> None:
        failed = True
        try:
            freshen(suspicious=suspicious)
            failed = run_claim(claim).outcome == Outcome.FAILED
        except BaseException as error:
            # Only its end is unknown: whether it was written, the event's row says.
            logger.error(
                "webhook run has no end, the event runs again: event=%s error=%s",
                claim.event.pk,
                type(error).__name__,
            )
            self.distrust()
            with self._condition:
                self._unsettled.append(claim)
        finally:
            with self._condition:
                self.runs += 1
                self.failures += failed
                del self._held[claim.token]
                self._condition.notify_all()
            self._changed()


def freshen(*, suspicious: bool) -> None:
    """Close this thread's connections that are broken or too old; with `suspicious`, try them.

    A CONN_MAX_AGE of zero means a connection for each request, and here there are none: the
    connection is kept.
    """
    reset_queries()
    for connection in connections.all(initialized_only=True):
        if not connection.settings_dict["CONN_MAX_AGE"]:
            connection.close_at = None
        connection.close_if_unusable_or_obsolete()
        if suspicious and connection.connection is not None and not connection.is_usable():
            connection.close()


def cut_short(claim: Claim) -> None:
    """Let a lease end soon whose run is over without a word of its end; the attempt counts.

    Raises the database's own error.
    """
    now, event = timezone.now(), claim.event
    wait = timedelta(seconds=2 ** min(event.attempts - 1, 10))
    until = now + min(wait, lease_of(event.provider))
    mine = WebhookEvent.objects.using(ledger.alias()).held_by(event.pk, claim.token)
    mine.filter(lease_expires_at__gt=until).update(lease_expires_at=until, next_attempt_at=until)
