"""The embedded engine's process: claims what is due, runs it, and stops without losing anything."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from queue import Empty, SimpleQueue

from django.db import connections

from .. import ledger
from .claimer import Claimer
from .pool import Pool
from .queued import give_back
from .wakeup import Bell, Listener

SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: The longest time, in seconds, until a signal is noticed.
SIGNAL_LATENCY = 0.2
#: Seconds without a sign of life from the loop after which the worker counts as stuck: a database
#: that does not answer must not get it killed.
STUCK = 120.0
#: Seconds that giving back what is held may take, and those that a locked SQLite may take of it.
GIVE_BACK, GIVE_BACK_LOCK = 5.0, 1.0
#: What is given back waits, until the thread that ran it has ended with its process for certain.
GIVEN_BACK_WAIT = timedelta(seconds=GIVE_BACK + 1)


@dataclass
class Ending:
    """How a worker ended.

    `given_back` events run again at once in another worker, `left` ones when their lease has run
    out. With `is_forced`, a handler still runs: only `end_process` stops it.
    """

    runs: int = 0
    failures: int = 0
    given_back: int = 0
    left: int = 0
    is_forced: bool = False
    error: BaseException | None = None


class Worker:
    """Runs what is due until it is told to stop, by a signal or by `stop`.

    `run` can be called once. It never raises for what a handler, the database or the lease store
    does; with `once` it ends when nothing is due, and its ending carries the database's error.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        grace: float,
        providers: Collection[str] | None = None,
        once: bool = False,
    ) -> None:
        self.grace = grace
        #: What the thread that waits in `run` is told; a queue that a signal handler may use.
        self._mail: SimpleQueue[str] = SimpleQueue()
        self.bell = Bell()
        self.claimer = Claimer(self.bell, providers, once=once)
        self.pool = Pool(concurrency, self.claimer)
        self.listener = None if once or not Listener.is_possible() else Listener(self.bell)

    def stop(self) -> None:
        """Stop as a signal does; a second call ends the wait for the handlers."""
        self._mail.put("stop")

    def is_dead(self) -> str | None:
        """What is wrong if this process cannot go on by itself; None if it can."""
        if not self.pool.is_alive and not self.claimer.is_stopping:
            return "a thread has ended"
        if self.claimer.stuck_for > STUCK:
            return "the loop is stuck"
        return None

    def is_unready(self) -> str | None:
        """What keeps this process from running events now; None if nothing does."""
        if self.claimer.is_stopping:
            return "stopping"
        if not self.claimer.sees:
            return "the database has not answered"
        return self.is_dead()

    def run(self) -> Ending:
        """Run events until there is an end to it."""
        with self._signals():
            self.pool.start()
            if self.listener is not None:
                self.listener.start()
            threading.Thread(target=self._tell_of_the_end, daemon=True).start()
            ended = self._read(math.inf) == "end" or self._finish()
            ending = Ending() if ended else self._give_back()
            if self.listener is not None:
                self.listener.stop()
        ending.runs, ending.failures = self.pool.runs, self.pool.failures
        ending.error = self.claimer.error
        return ending

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Take the signals where Python lets us."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, lambda *_: self.stop()) for each in SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _tell_of_the_end(self) -> None:
        self.pool.join()
        self._mail.put("end")

    def _finish(self) -> bool:
        """Let what runs come to its end; False if the grace or a second signal ends the wait."""
        self.claimer.stop()
        return self._read(self.grace) == "end"

    def _read(self, seconds: float) -> str:
        """The next word in the mail, empty if none comes in time.

        A signal may interrupt another thread than this one, which runs Python's handlers: so it
        has to wake by itself now and then.
        """
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            with suppress(Empty):
                return self._mail.get(timeout=min(left, SIGNAL_LATENCY))
        return ""

    def _give_back(self) -> Ending:
        """Give back what is held, while it still runs: no thread can be stopped from outside."""
        held = self.claimer.held()
        given: list[bool] = []

        def give() -> None:
            for claim in held:
                with suppress(Exception), ledger.bounded_lock_wait(ledger.alias(), GIVE_BACK_LOCK):
                    given.append(give_back(claim, GIVEN_BACK_WAIT))
            connections.close_all()
            self._mail.put("given")

        threading.Thread(target=give, daemon=True).start()
        deadline = time.monotonic() + GIVE_BACK
        while self._read(deadline - time.monotonic()) == "end":
            continue
        # What could not be given back has ended meanwhile.
        return Ending(given_back=sum(given), left=len(held) - len(given), is_forced=True)


def end_process(status: int) -> None:
    """End this process with what still runs in it: nothing of that may go on."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(status)
