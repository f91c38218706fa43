"""Keep a lease alive while its work lasts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import DatabaseError, connections

from ..exceptions import StoreUnavailable
from ..stores import LeaseStore

logger = logging.getLogger("django_webhook_idempotency")

#: A lease is renewed this many times in its length, so that one failed renewal costs nothing.
BEATS = 3


@contextmanager
def heartbeat(store: LeaseStore, key: str, token: str, lease: timedelta) -> Iterator[None]:
    """Renew a lease from a thread of its own until the block ends or the lease is lost.

    The thread opens a connection only if the work outlives the first beat.
    """
    done = threading.Event()

    def beat() -> None:
        try:
            while not done.wait(lease.total_seconds() / BEATS):
                try:
                    if not store.renew(key, token, lease):
                        logger.warning("webhook lease lost while its handler runs")
                        return
                except (StoreUnavailable, DatabaseError) as error:
                    logger.warning("webhook lease not renewed: %s", type(error).__name__)
                    connections.close_all()
        finally:
            connections.close_all()

    thread = threading.Thread(target=beat, name="webhook-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
