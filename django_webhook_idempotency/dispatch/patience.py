"""How long an event that has to run alone makes the others wait."""

from __future__ import annotations

import time
from collections.abc import Iterable

from .claims import Claim

#: Seconds that it waits for what runs, and that others wait for it: something may hang. After a
#: wait that was too short the next one is twice as long, up to the longest.
ALONE_WAIT, LONGEST_ALONE_WAIT = 60.0, 600.0
#: So many times as long nobody waits after it: what has to run alone costs a tenth of the time.
PAUSE = 10


class Patience:
    """Whether to wait for what runs, which lets nothing new begin; known from the last time."""

    def __init__(self) -> None:
        self._wait = ALONE_WAIT
        self._not_before = float("-inf")
        #: The tokens of what ran longer than somebody waited.
        self._outlasted: set[str] = set()

    def seconds(self, running: Iterable[Claim]) -> float:
        """How long to wait for what runs; zero while that has no prospect."""
        # What hangs would be waited for again and again.
        self._outlasted &= {claim.token for claim in running}
        if self._outlasted or time.monotonic() < self._not_before:
            return 0.0
        return self._wait

    def lose(self, running: Iterable[Claim]) -> None:
        """Remember what still runs after a wait."""
        self._outlasted = {claim.token for claim in running}
        self._not_before = time.monotonic() + self._wait * PAUSE
        self._wait = min(self._wait * 2, LONGEST_ALONE_WAIT)
