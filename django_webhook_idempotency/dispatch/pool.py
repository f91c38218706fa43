"""The threads of a worker that run claimed events, each with connections of its own."""

from __future__ import annotations

import logging
import threading
import time

from django.db import connections, reset_queries

from ..enums import Outcome
from .blocks import closed_blocks
from .claimer import Claimer
from .claims import Claim
from .queued import run_claim

logger = logging.getLogger("django_webhook_idempotency")

#: Seconds after which a connection that nobody used is tried before an event depends on it.
IDLE = 1.0


class Pool:
    """Runs events side by side; nothing that a handler raises ends one of its threads."""

    def __init__(self, size: int, claimer: Claimer) -> None:
        self.claimer = claimer
        self.runs = 0
        self.failures = 0
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, name=f"webhook-{number}", daemon=True)
            for number in range(1, size + 1)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether all threads are there."""
        return all(thread.is_alive() for thread in self._threads)

    def join(self) -> None:
        """Wait until no thread has anything to do any more."""
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        """Run events until there are no more."""
        try:
            used = time.monotonic()
            while (claim := self.claimer.take()) is not None:
                now = time.monotonic()
                self._run(claim, suspicious=now - used > IDLE or self.claimer.trouble >= used)
                used = time.monotonic()
        except BaseException as error:
            # Nobody knows what; a process with fewer threads than it should have must not stay.
            self.claimer.error = error
            self.claimer.stop()
            raise
        finally:
            connections.close_all()

    def _run(self, claim: Claim, *, suspicious: bool) -> None:
        failed, settled = True, False
        try:
            freshen(suspicious=suspicious)
            # Handlers are looked after where they are called; receivers of signals only here.
            with closed_blocks():
                failed, settled = run_claim(claim).outcome == Outcome.FAILED, True
        except BaseException as error:
            # Only its end is unknown: whether it was written, the event's row says.
            logger.error(
                "webhook run has no end, the event runs again: event=%s error=%s",
                claim.event.pk,
                type(error).__name__,
            )
        finally:
            with self._lock:
                self.runs += 1
                self.failures += failed
            self.claimer.done(claim, settled=settled)


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
