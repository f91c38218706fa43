"""Whose turn it is: sources share the workers, however much any of them sends.

A source is one scope of one provider. Each in turn gives its oldest due event.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from datetime import datetime
from functools import partial

from django.utils import timezone

from .claims import Claim, claim_due
from .runs import retried
from .sources import Source, sources

#: Seconds after which the sources are looked at again, so that new ones get their turn.
REFRESH = 0.5
#: What one look costs at the most, in sources and in seconds, if there is something to run: the
#: next one goes on where it ended.
LOOK_SOURCES, LOOK_TIME = 1000, 0.1


class Rotation:
    """Gives each source its turn; shared by the threads of one process."""

    def __init__(self, providers: Collection[str] | None = None) -> None:
        self.providers = providers
        #: When the next event is due that was not at the last look; None if there is none.
        self.next_due: datetime | None = None
        self._lock = threading.Lock()
        self._turns: deque[Source] = deque()
        self._looked = float("-inf")
        #: How often all sources have been looked at.
        self._laps = 0
        #: Those left of this lap; None between two.
        self._rest: Iterator[Source] | None = None
        #: Those due in this lap, and when the next of the others is.
        self._due: set[Source] = set()
        self._next_due: datetime | None = None

    def claim(self) -> Claim | None:
        """Claim the next event; None if nothing is due.

        Raises StoreUnavailable, or the database's own error.
        """
        enough: int | None = None
        while True:
            with self._lock:
                if enough is None:
                    # A lap that has begun may have passed by what is due now.
                    enough = self._laps + (1 if self._rest is None else 2)
                if not self._turns and self._laps >= enough:
                    return None
                if not self._turns or time.monotonic() - self._looked > REFRESH:
                    self._look()
                source = self._turns.popleft() if self._turns else None
            if source is None:
                continue
            claim = retried(partial(claim_due, source.lane, source.scope))
            if claim is not None:
                with self._lock:
                    self._turns.append(source)
                return claim

    def _look(self) -> None:
        """Look at more sources; those that are due and have no place in the order come last."""
        now, deadline = timezone.now(), time.monotonic() + LOOK_TIME
        if self._rest is None:
            self._rest, self._due, self._next_due = sources(self.providers), set(), None
        known = set(self._turns)
        try:
            for number, source in enumerate(self._rest, 1):
                if source.due_at > now:
                    self._next_due = min(source.due_at, self._next_due or source.due_at)
                else:
                    self._due.add(source)
                    if source not in known:
                        self._turns.append(source)
                # All of them at first: processes that live for one event each have to begin
                # anywhere, or those at the end would never have their turn.
                if self._laps and (number >= LOOK_SOURCES or time.monotonic() > deadline):
                    break
            else:
                self._end_lap()
        except BaseException:
            self._rest = None  # it cannot be read on
            raise
        self._looked = time.monotonic()

    def _end_lap(self) -> None:
        """Forget those that were not due in this lap; the others keep their place in the order."""
        self._turns = deque(source for source in dict.fromkeys(self._turns) if source in self._due)
        if not self._laps and self._turns:
            self._turns.rotate(random.randrange(len(self._turns)))  # noqa: S311
        self.next_due, self._rest = self._next_due, None
        self._laps += 1
