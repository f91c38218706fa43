"""Hand messages to a broker in a thread of its own, so that nobody waits long for one."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable

from ...exceptions import WebhookError

#: Seconds for which nobody waits after a message that did not get through.
PAUSE = 5.0
#: Seconds without a message after which whatever is open is closed.
IDLE = 20.0


class NotCarried(WebhookError):
    """The broker did not take a message in time, or did not take the one before it."""


class Job:
    """One message on its way. Whoever handed it over may have given it up."""

    def __init__(self, send: Callable[[], None], timeout: float) -> None:
        self.send = send
        self.timeout = timeout
        self.abandoned = False
        self.done = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> bool:
        """Send the message; whether that went well, and fast enough to be waited for again."""
        started = time.monotonic()
        try:
            self.send()
        except BaseException as error:
            self.error = error
        return self.error is None and time.monotonic() - started <= self.timeout


class Courier:
    """Sends messages one after the other in a daemon thread, of which each process has its own.

    Whoever hands one over waits for it at most `timeout` seconds. When one fails, those after it
    fail at once, and from time to time one of them is sent without anybody waiting: once that
    gets through, all is as before.
    """

    def __init__(self, on_idle: Callable[[], None] = lambda: None) -> None:
        self._on_idle = on_idle
        self._start_anew()
        os.register_at_fork(after_in_child=self._start_anew)

    def _start_anew(self) -> None:
        """Forget everything: a thread is not there any more after a fork."""
        self._lock = threading.Lock()
        self._jobs: queue.Queue[Job] = queue.Queue()
        self._thread: threading.Thread | None = None
        #: Jobs that are sent or wait for it.
        self._open = 0
        #: When the next message is tried while none gets through; None while they do.
        self._next_try: float | None = None

    def carry(self, send: Callable[[], None], timeout: float) -> None:
        """Call `send` in the thread and wait for its end. Raises its error, or NotCarried."""
        job = Job(send, timeout)
        with self._lock:
            is_down = self._next_try is not None
            if not is_down or self._may_try():
                self._hand_over(job)
        if is_down:
            raise NotCarried("The broker did not take the message before.")
        if not job.done.wait(timeout):
            with self._lock:
                job.abandoned = True
                self._pause()
            raise NotCarried(f"The broker did not take the message within {timeout:g} s.")
        if job.error is not None:
            raise job.error

    def _may_try(self) -> bool:
        """Whether it is time to look if the broker is back, and nobody looks already."""
        if self._open or self._next_try is None or time.monotonic() < self._next_try:
            return False
        self._pause()
        return True

    def _pause(self) -> None:
        self._next_try = time.monotonic() + PAUSE

    def _hand_over(self, job: Job) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="webhook-courier", daemon=True)
            self._thread.start()
        self._open += 1
        self._jobs.put(job)

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE)
            except queue.Empty:
                self._on_idle()
                continue
            went_well = False
            if not job.abandoned:
                went_well = job.run()
            with self._lock:
                self._open -= 1
                if went_well and not job.abandoned:
                    self._next_try = None
                else:
                    self._pause()
            job.done.set()
