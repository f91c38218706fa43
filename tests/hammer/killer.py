"""Kills workers with SIGKILL at random moments inside a handler."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator

from .journal import Line
from .provider import Event, events
from .server import Server


class Killer(threading.Thread):
    """Kills until so many workers have died inside a handler."""

    def __init__(self, server: Server, kills: int, linger: float) -> None:
        """`linger`: the longest wait, in seconds, between seeing a handler start and the kill."""
        super().__init__(name="killer")
        self.server = server
        self.wanted = kills
        self.linger = linger
        self.dead: set[int] = set()
        self.inside = 0
        self.stopped = threading.Event()

    @property
    def done(self) -> bool:
        return self.stopped.is_set()

    def run(self) -> None:
        try:
            while self.inside < self.wanted and not self.stopped.is_set():
                if self._kill_one():
                    time.sleep(random.uniform(0, 0.2))
                else:
                    time.sleep(0.005)
        finally:
            self.stopped.set()

    def _kill_one(self) -> bool:
        running = [pid for pid in self.server.journal.running() if pid not in self.dead]
        if not running:
            return False
        pid = random.choice(running)
        time.sleep(random.uniform(0, self.linger))
        os.kill(pid, signal.SIGKILL)
        self.dead.add(pid)
        # A moment for its last line, if it was just writing one.
        time.sleep(0.005)
        if pid in self.server.journal.running():
            self.inside += 1
        return True

    def stop(self) -> None:
        self.stopped.set()
        self.join()

    def cuts(self) -> Counter[str]:
        """How often each event's handler, or what follows it, was cut off by a kill."""
        last: dict[int, Line] = {}
        for line in self.server.journal.lines("enter"):
            last[line.pid] = line
        return Counter(last[pid].event for pid in self.dead if pid in last)

    def feed(self, type: str, at_most: int, copies: int = 2) -> Iterator[Event]:
        """New events, a few copies of each, for as long as there is somebody to kill."""
        number = 0
        while not self.done and number < at_most:
            batch = []
            for event in events(10, type, prefix=f"kill-{number}"):
                plan = {"before": random.randint(0, 15), "after": random.randint(0, 15)}
                batch += [Event(event.provider, event.id, type, plan)] * copies
            random.shuffle(batch)
            yield from batch
            number += 10
