"""Keep a lease alive while its work lasts."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from django.db import DatabaseError, connections

from ..exceptions import StoreUnavailable

logger = logging.getLogger("django_webhook_idempotency")

#: A lease is renewed this many times in its length, so that one failed renewal costs nothing.
BEATS = 3
#: Seconds from the commit of a run's end to the end of its heartbeat, at the most.
END_TIME = 1.0


class Renewable(Protocol):
    """What keeps leases, as far as they are renewed."""

    def renew(self, key: str, token: str, lease: timedelta) -> bool:
        """Start the lease's time again; False if `token` no longer holds it."""
        ...


@contextmanager
def heartbeat(store: Renewable, key: str, token: str, lease: timedelta) -> Iterator[None]:
    """Renew a lease from another thread until the block ends or the lease is lost.

    Work that is over before the first beat costs neither a thread nor a connection.
    """
    heart = Heart(store, key, token, lease)
    pacemaker.add(heart)
    try:
        yield
    finally:
        pacemaker.remove(heart)


class Heart:
    """The renewals of one lease, in a thread of their own: none waits for another's lock."""

    def __init__(self, store: Renewable, key: str, token: str, lease: timedelta) -> None:
        self.store = store
        self.key = key
        self.token = token
        self.lease = lease
        self.pause = lease.total_seconds() / BEATS
        self.done = threading.Event()
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        """Beat from now on."""
        self.thread = threading.Thread(target=self._beat, name="webhook-lease", daemon=True)
        self.thread.start()

    def _beat(self) -> None:
        try:
            while not self.done.is_set():
                try:
                    if not self.store.renew(self.key, self.token, self.lease):
                        # Or its end has just been written, and the work is about to say so.
                        if not self.done.wait(END_TIME):
                            logger.warning("webhook lease lost while its handler runs")
                        return
                except (StoreUnavailable, DatabaseError) as error:
                    logger.warning("webhook lease not renewed: %s", type(error).__name__)
                    connections.close_all()
                self.done.wait(self.pause)
        finally:
            connections.close_all()


class Pacemaker:
    """One thread of the process, which starts the hearts of the work that lasts.

    A thread for each run would take longer to start and to end than most handlers run.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start anew in a forked process, where neither the thread nor its lock live on."""
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, Heart]] = []
        self._order = count()
        self._thread: threading.Thread | None = None

    def add(self, heart: Heart) -> None:
        """Start a heart when its first beat is due."""
        with self._changed:
            due = time.monotonic() + heart.pause
            heappush(self._waiting, (due, next(self._order), heart))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="webhook-pacemaker", daemon=True
                )
                self._thread.start()
            elif self._waiting[0][2] is heart:
                self._changed.notify()

    def remove(self, heart: Heart) -> None:
        """Stop a heart, whether it beats yet or not."""
        with self._changed:
            heart.done.set()
        if heart.thread is not None:
            heart.thread.join()

    def _run(self) -> None:
        with self._changed:
            while True:
                wait = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                    continue
                heart = heappop(self._waiting)[2]
                if not heart.done.is_set():
                    heart.start()


pacemaker = Pacemaker()
if hasattr(os, "register_at_fork"):  # not on Windows, which doesn't fork
    os.register_at_fork(after_in_child=pacemaker.reset)
