"""The server's handlers. What they do to an event stands in the event, under `plan`."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection

from django_webhook_idempotency.handlers import webhook_handler
from django_webhook_idempotency.models import WebhookEvent
from tests.app.models import Effect

from .journal import Journal

DIRECTORY = Path(os.environ.get("HAMMER_DIRECTORY", "/nonexistent"))
journal = Journal(DIRECTORY / "journal")


@webhook_handler("*", "hammer.atomic")
def atomic(event: WebhookEvent) -> None:
    play(event)


@webhook_handler("*", "hammer.leased", atomic=False)
def leased(event: WebhookEvent) -> None:
    play(event)


@webhook_handler("*", "hammer.two")
def first_of_two(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id, name="first of two")


@webhook_handler("*", "hammer.two")
def second_of_two(event: WebhookEvent) -> None:
    play(event)


@webhook_handler("*", "hammer.one")
def one(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id)


@webhook_handler("*", "hammer.one_leased", atomic=False)
def one_leased(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id)


@webhook_handler("*", "hammer.poison")
def poison(event: WebhookEvent) -> None:
    """End the process that runs it."""
    journal.write("enter", event.event_id)
    os.kill(os.getpid(), signal.SIGKILL)


@webhook_handler("*", "hammer.exit")
def leave(event: WebhookEvent) -> None:
    """Raise what is no Exception."""
    journal.write("enter", event.event_id)
    sys.exit("as planned")


def play(event: WebhookEvent) -> None:
    """Wait, lock rows, write the effect, wait, fail: as the event's plan says."""
    plan: dict[str, Any] = event.data.get("plan", {})
    with alone(event), entered(event, plan):
        pause(plan.get("before", 0))
        for pk in plan.get("rows", []):
            row = Effect.objects.select_for_update().get(pk=pk)
            pause(plan.get("between", 0))
            row.save()
        Effect.objects.create(event_id=event.event_id)
        journal.write("wrote", event.event_id)
        pause(plan.get("after", 0))
        if first_times(event, plan.get("failures", 0)):
            raise RuntimeError("as planned")


@contextmanager
def entered(event: WebhookEvent, plan: dict[str, Any]) -> Iterator[None]:
    """Write into the journal when the handler starts and how it ends."""
    journal.write("enter", event.event_id, backend() if plan.get("backend") else "")
    try:
        yield
    except BaseException as error:
        journal.write("leave", event.event_id, type(error).__name__)
        raise
    journal.write("leave", event.event_id)


@contextmanager
def alone(event: WebhookEvent) -> Iterator[None]:
    """Hold a lock file, which the kernel gives back when the process dies; tell of two at once."""
    file = os.open(DIRECTORY / f"{event.event_id}.lock", os.O_CREAT | os.O_RDWR)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            journal.write("overlap", event.event_id)
        yield
    finally:
        os.close(file)


def first_times(event: WebhookEvent, times: int) -> bool:
    """Whether this is one of the first so many calls; no rollback undoes the files."""
    for number in range(times):
        try:
            os.close(os.open(DIRECTORY / f"{event.event_id}.{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return True
    return False


def backend() -> str:
    """The number under which the database knows this connection."""
    query = {
        "postgresql": "SELECT pg_backend_pid()",
        "mysql": "SELECT CONNECTION_ID()",
        "sqlite": "SELECT 0",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(query)
        return str(cursor.fetchone()[0])


def pause(milliseconds: float) -> None:
    if milliseconds:
        time.sleep(milliseconds / 1000)
