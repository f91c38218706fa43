"""The loop of a worker: claim what is due while a thread is free, and sleep while nothing is."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Collection

from django.db import connections
from django.utils import timezone

from .. import ledger
from ..models import WebhookEvent
from ..stores import lease_store
from .claims import Claim, lease_of
from .heartbeat import heartbeat
from .lanes import Rotation
from .pool import Pool
from .queued import give_back
from .wakeup import Bell

logger = logging.getLogger("django_webhook_idempotency")

#: Seconds between two looks while nothing is due: the first pause and, ever doubling, the longest,
#: and that where the database wakes us.
FIRST_POLL, LONGEST_POLL, BELL_POLL = 0.1, 2.0, 5.0
#: Seconds between two tries while the database is away: the first and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 15.0
#: Seconds after which the loop shows that it is alive.
TICK = 1.0
#: After so many attempts an event that ended its worker runs alone: what runs beside it would be
#: ended too, and in the end be given up with it.
ALONE_AFTER = 2


class Claimer(threading.Thread):
    """Claims events and hands them to the pool, until `stop`, or with `once` until nothing is due.

    The database may go away at any time; with `once` that ends the loop with an `error`.
    """

    def __init__(
        self, pool: Pool, bell: Bell, providers: Collection[str] | None, *, once: bool
    ) -> None:
        super().__init__(name="webhook-claimer", daemon=True)
        self.pool = pool
        self.bell = bell
        self.once = once
        self.rotation = Rotation(providers)
        #: Whether the last look at the database worked; None before the first.
        self.sees: bool | None = None
        #: When the loop last showed that it is alive.
        self.ticked = time.monotonic()
        self.error: BaseException | None = None
        self._stopping = threading.Event()
        self._poll = FIRST_POLL
        self._pause = FIRST_PAUSE

    def stop(self) -> None:
        """Claim nothing more. What is being claimed at this moment is given back."""
        self._stopping.set()
        self.bell.ring()

    @property
    def is_stopping(self) -> bool:
        """Whether nothing more is claimed."""
        return self._stopping.is_set()

    def run(self) -> None:
        """Claim until there is an end to it."""
        try:
            while not self.is_stopping and self.error is None:
                self.ticked = time.monotonic()
                if self.pool.wait_for_room(TICK) and not self._step():
                    return
        except BaseException as error:
            self.error = error
            raise
        finally:
            connections.close_all()

    def _step(self) -> bool:
        """Look once, and sleep if there was nothing; False if nothing will come any more."""
        was_busy = self.pool.is_busy
        self.bell.silence()
        try:
            claim = self.rotation.claim()
            if claim is not None:
                self._hand_over(claim)
            self.pool.settle()
        except Exception as error:
            # A claim that is lost here is found again when its lease has run out.
            self._away(error)
            return True
        self.sees, self._pause = True, FIRST_PAUSE
        if claim is not None:
            self._poll = FIRST_POLL
        elif self.once and not was_busy:
            return False
        else:
            self._sleep()
        return True

    def _away(self, error: Exception) -> None:
        """Wait for the database, or the lease store, to come back."""
        self.sees = False
        if self.once:
            self.error = error
            return
        logger.warning("webhook worker waits for its database: %s", type(error).__name__)
        self.pool.distrust()
        connections.close_all()
        self._stopping.wait(self._pause * random.uniform(0.5, 1))  # noqa: S311
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _sleep(self) -> None:
        """Wait for the bell, the next due event or the next look, whichever is first."""
        due = self.rotation.next_due
        wait = BELL_POLL if self.bell.is_wired else self._poll * random.uniform(0.8, 1)  # noqa: S311
        if due is not None:
            wait = min(wait, max((due - timezone.now()).total_seconds(), 0))
        # A run that ends rings too: something may be due after it.
        rung = self.bell.wait(wait)
        self._poll = FIRST_POLL if rung else min(self._poll * 2, LONGEST_POLL)

    def _hand_over(self, claim: Claim) -> None:
        if self.is_stopping:
            give_back(claim)
        elif claim.abandoned and claim.event.attempts > ALONE_AFTER:
            self._run_alone(claim)
        else:
            self.pool.submit(claim)

    def _run_alone(self, claim: Claim) -> None:
        """Run an event that may end this process while nothing else runs in it."""
        event = claim.event
        with heartbeat(lease_store(), event.dedupe_key, claim.token, lease_of(event.provider)):
            self._wait_until_idle()
        if self.is_stopping:
            give_back(claim)
        elif WebhookEvent.objects.using(ledger.alias()).held_by(event.pk, claim.token).exists():
            self.pool.submit(claim)
            self._wait_until_idle()

    def _wait_until_idle(self) -> None:
        while not self.is_stopping and not self.pool.wait_until_idle(TICK):
            self.ticked = time.monotonic()
