"""Runs of handlers: calling them, and writing down how it went."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from django.db import DatabaseError, connections
from django.http import HttpResponseBase
from django.utils import timezone

from .. import ledger
from ..exceptions import Ignore, Reject, Superseded, WebhookError
from ..handlers import Handler
from ..models import (
    MAX_ERROR,
    MAX_TRACEBACK,
    HandlerRun,
    WebhookEvent,
    class_name,
    displayable,
    text_of,
)
from ..providers import Incoming, Provider
from .blocks import closed_blocks
from .responses import rendered
from .work import ViewFailed

Returned = TypeVar("Returned")

#: Seconds between two looks at an event that somebody else is running: first and longest.
FIRST_PAUSE = 0.005
LONGEST_PAUSE = 0.1
#: How often a transaction that lost a deadlock or a serialization check is run again at once.
TRANSIENT_TRIES = 4
#: The longest pause before the second try, in seconds; it doubles with each.
TRANSIENT_PAUSE = 0.08
FIRST_ERROR_STATUS = 300
#: The columns of a stored event that a delivery which nobody signed may replace.
BODY_COLUMNS = ("body", "body_digest", "content_type")


class WriterBusy(WebhookError):
    """SQLite's lock for writing was not to be had in time, so the handler was not called."""


def patience(wait: float) -> Iterator[None]:
    """Yield at once and then again, ever more rarely, until `wait` seconds have passed."""
    deadline = time.monotonic() + wait
    pause = FIRST_PAUSE
    while True:
        yield
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(pause * 2, LONGEST_PAUSE)


def retried(work: Callable[[], Returned]) -> Returned:
    """Run a whole transaction, again at once if the database undid it for another.

    The last error is raised when the tries are used up.
    """
    for tries in range(1, TRANSIENT_TRIES):
        try:
            return work()
        except Exception as error:
            if not ledger.is_transient(error):
                raise
            pause_before(tries + 1)
    return work()


def insist(using: str, write: Callable[[], Returned]) -> Returned:
    """Write down what has happened outside the database already, despite a passing fault.

    Tries again after a deadlock, a lost serialization check, a refused lock or a lost connection.
    If the connection was lost in the commit, `write` may take effect twice.
    """
    for tries in range(1, TRANSIENT_TRIES):
        before = connections[using].connection
        try:
            return write()
        except DatabaseError as error:
            if not (ledger.was_lost(using, before) or ledger.is_passing(error)):
                raise
            pause_before(tries + 1)
    return write()


def pause_before(tries: int) -> None:
    """Sleep a random time before the next try of a transaction, longer before each."""
    time.sleep(random.uniform(0, TRANSIENT_PAUSE * 2 ** (tries - 1)))  # noqa: S311


class HandlerLeft(WebhookError):
    """A handler raised SystemExit or the like, which would have ended the thread it runs in."""


@dataclass
class Run:
    """One run while it lasts."""

    handler: Handler
    number: int
    started_at: datetime = field(default_factory=timezone.now)
    #: Whether it was the handler that failed, and not what came after it.
    raised: bool = False

    def row(self, event: WebhookEvent, error: BaseException | None = None) -> HandlerRun:
        """The run's row, now that it has ended. `Ignore` is a way to succeed."""
        run = HandlerRun(
            event=event,
            handler=self.handler.stored_name,
            number=self.number,
            started_at=self.started_at,
            finished_at=timezone.now(),
        )
        if isinstance(error, Superseded):
            run.error_class = class_name(error)
        elif error is not None and not isinstance(error, Ignore):
            run.error_class = class_name(error)[:255]
            run.error_message = displayable(text_of(error), MAX_ERROR)
            run.traceback = displayable(
                "".join(traceback.format_exception(error))[-MAX_TRACEBACK:], MAX_TRACEBACK
            )
        return run


def call(handler: Handler, event: WebhookEvent) -> Any:
    """Call a handler; a response that it returns is rendered, and one that is no 2xx is a failure.

    Raises what the handler raises, HandlerLeft, ViewFailed, or TransactionManagementError if it
    left a transaction open.
    """
    try:
        with closed_blocks():
            value = handler(event)
    except Exception:
        raise
    except BaseException as error:
        if threading.current_thread() is threading.main_thread():
            raise  # the server's signal handlers end a worker so
        raise HandlerLeft(f"The handler raised {type(error).__name__}.") from error
    finally:
        # Whoever comes next reads the payload as it came: another handler, this one again after a
        # deadlock, a receiver of the signals.
        event.forget_data()
    if isinstance(value, HttpResponseBase):
        rendered(value)
        if value.status_code >= FIRST_ERROR_STATUS:
            raise ViewFailed(value)
    return value


def worse(failure: Exception | None, error: Exception | None) -> Exception | None:
    """Which of two failures of one event counts: one that can be tried again beats a `Reject`."""
    if error is None or isinstance(error, Ignore):
        return failure
    if failure is None or isinstance(failure, Reject):
        return error
    return failure if isinstance(error, Reject) else error


def read_stored(event: WebhookEvent, came: WebhookEvent, provider: Provider) -> WebhookEvent:
    """Let a stored event's `data` be read from its own body as the provider reads it.

    Where nothing is signed, what was stored before may be a stranger's: then the body counts that
    `came` with the delivery which the view is about to let in or turn away.
    """
    if not provider.is_signed:
        for name in BODY_COLUMNS:
            setattr(event, name, getattr(came, name))
    incoming = Incoming.stored(bytes(event.body or b""), event.content_type)
    event.read_data_with(payload_of(incoming, provider))
    return event


def payload_of(incoming: Incoming, provider: Provider) -> Callable[[], Any]:
    """What reads a payload: the first time what is parsed already, and anew each time after."""
    came = [incoming]
    return lambda: provider.payload(came.pop() if came else replace(incoming))
