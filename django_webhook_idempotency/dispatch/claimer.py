"""Claim what is due for the threads of a worker, and sleep while nothing is."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Collection
from datetime import timedelta

from django.db import connections
from django.utils import timezone

from .. import ledger
from ..models import WebhookEvent
from ..stores import lease_store
from .claims import Claim, lease_of
from .heartbeat import heartbeat
from .lanes import Rotation
from .patience import Patience
from .queued import give_back
from .silence import watch
from .wakeup import Bell

logger = logging.getLogger("django_webhook_idempotency")

#: Seconds between two looks while nothing is due: the first pause and, ever doubling, the longest,
#: and that where the database wakes us.
FIRST_POLL, LONGEST_POLL, BELL_POLL = 0.1, 2.0, 5.0
#: Seconds between two tries while the database is away: the first and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 15.0
#: Seconds after which a thread that waits shows that it is alive.
TICK = 1.0
#: After so many attempts an event that ended its worker runs alone: what runs beside it would be
#: ended too, and in the end be given up with it.
ALONE_AFTER = 2


class Claimer:
    """Gives each thread that asks the next event, until `stop`, or with `once` until none is due.

    One thread at a time looks, and sleeps if there is nothing; those that are free besides wait
    for their turn. The database may go away at any time; with `once` that ends it with an `error`.
    """

    def __init__(self, bell: Bell, providers: Collection[str] | None, *, once: bool) -> None:
        self.bell = bell
        self.once = once
        self.rotation = Rotation(providers)
        #: Whether the last look at the database worked; None before the first.
        self.sees: bool | None = None
        #: When somebody last had trouble with the database.
        self.trouble = float("-inf")
        self.error: BaseException | None = None
        self._stopping = threading.Event()
        #: Held by the thread that looks.
        self._turn = threading.Lock()
        #: When it last showed that it is alive; None while nobody looks.
        self._ticked: float | None = None
        self._condition = threading.Condition()
        #: Token to claim: what runs.
        self._held: dict[str, Claim] = {}
        #: Claims whose end could not be written.
        self._unsettled: list[Claim] = []
        #: Whether what runs is to be alone.
        self._alone = False
        self._patience = Patience()
        self._poll = FIRST_POLL
        self._pause = FIRST_PAUSE

    def take(self) -> Claim | None:
        """The next event, whenever it comes; None if there is an end to it."""
        with self._turn:
            try:
                while not self.is_stopping:
                    self._ticked = time.monotonic()
                    claim = self._look()
                    if claim is not None:
                        return claim
                return None
            finally:
                self._ticked = None

    def done(self, claim: Claim, *, settled: bool) -> None:
        """Say that a run is over, and whether its end was written."""
        with self._condition:
            del self._held[claim.token]
            if not settled:
                self.trouble = time.monotonic()
                self._unsettled.append(claim)
            self._condition.notify_all()
        # Something may be due after it, or nothing any more.
        self.bell.ring()

    def stop(self) -> None:
        """Claim nothing more. What is being claimed at this moment is given back."""
        self._stopping.set()
        self.bell.ring()

    @property
    def is_stopping(self) -> bool:
        """Whether nothing more is claimed."""
        return self._stopping.is_set()

    @property
    def stuck_for(self) -> float:
        """The seconds since the thread whose turn it is has last shown that it is alive."""
        ticked = self._ticked
        return 0.0 if ticked is None else time.monotonic() - ticked

    def held(self) -> list[Claim]:
        """What runs."""
        with self._condition:
            return list(self._held.values())

    def _look(self) -> Claim | None:
        """Look once, and sleep if there was nothing."""
        if self._alone:
            if not self._wait_until_idle(self._patience.seconds(self.held())):
                self._patience.lose(self.held())
            self._alone = False
        was_busy = bool(self._held)
        self.bell.silence()
        try:
            self._settle()
            watch()
            claim = self.rotation.claim()
            self.sees, self._pause = True, FIRST_PAUSE
            if claim is not None:
                self._poll = FIRST_POLL
                return claim if self._may_run(claim) else None
        except Exception as error:
            # A claim that is lost here is found again when its lease has run out.
            self._away(error)
            return None
        if self.once and not was_busy:
            self._stopping.set()
        else:
            self._sleep()
        return None

    def _away(self, error: Exception) -> None:
        """Wait for the database, or the lease store, to come back."""
        self.sees = False
        if self.once:
            self.error = error
            self._stopping.set()
            return
        logger.warning("webhook worker waits for its database: %s", type(error).__name__)
        self.trouble = time.monotonic()
        connections.close_all()
        self._stopping.wait(self._pause * random.uniform(0.5, 1))  # noqa: S311
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _sleep(self) -> None:
        """Wait for the bell, the next due event or the next look, whichever is first."""
        due = self.rotation.next_due
        wait = BELL_POLL if self.bell.is_wired else self._poll * random.uniform(0.8, 1)  # noqa: S311
        if due is not None:
            wait = min(wait, max((due - timezone.now()).total_seconds(), 0))
        rung = self.bell.wait(wait)
        self._poll = FIRST_POLL if rung else min(self._poll * 2, LONGEST_POLL)

    def _may_run(self, claim: Claim) -> bool:
        """Whether a claim is to be run; one that may end this process waits until it is alone."""
        alone = claim.abandoned and claim.event.counted_attempts > ALONE_AFTER
        is_alone = not alone or self._is_alone(claim)
        if self.is_stopping:
            give_back(claim)
            return False
        if not is_alone:
            # Another worker may be idle by then.
            give_back(claim, lease_of(claim.event.provider) / 2)
            return False
        if alone and not self._is_ours(claim):
            return False
        self._alone = alone
        with self._condition:
            self._held[claim.token] = claim
        return True

    def _is_alone(self, claim: Claim) -> bool:
        """Whether nothing runs beside a claim, or has ended in a time worth waiting."""
        event, seconds = claim.event, self._patience.seconds(self.held())
        with heartbeat(lease_store(), event.dedupe_key, claim.token, lease_of(event.provider)):
            is_idle = self._wait_until_idle(seconds)
        if is_idle:
            self._patience = Patience()
        elif seconds:
            self._patience.lose(self.held())
        return is_idle

    def _is_ours(self, claim: Claim) -> bool:
        events = WebhookEvent.objects.using(ledger.alias())
        return events.held_by(claim.event.pk, claim.token).exists()

    def _wait_until_idle(self, seconds: float) -> bool:
        """Wait until nothing runs; False if something still does."""
        deadline = time.monotonic() + seconds
        with self._condition:
            while self._held and not self.is_stopping and time.monotonic() < deadline:
                self._ticked = time.monotonic()
                self._condition.wait(min(TICK, seconds))
            return not self._held

    def _settle(self) -> None:
        """Let the leases end soon of runs whose end could not be written: the database is back."""
        while self._unsettled:
            cut_short(self._unsettled[0])
            with self._condition:
                del self._unsettled[0]


def cut_short(claim: Claim) -> None:
    """Let a lease end soon whose run is over without a word of its end; the attempt counts.

    Raises the database's own error.
    """
    now, event = timezone.now(), claim.event
    wait = timedelta(seconds=2 ** min(event.attempts - 1, 10))
    until = now + min(wait, lease_of(event.provider))
    mine = WebhookEvent.objects.using(ledger.alias()).held_by(event.pk, claim.token)
    mine.filter(lease_expires_at__gt=until).update(lease_expires_at=until, next_attempt_at=until)
