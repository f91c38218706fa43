"""A re-verification that is killed, and several at once: nothing lost, nothing twice."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client

from django_webhook_idempotency.models import QuarantinedDelivery, WebhookDelivery, WebhookEvent
from django_webhook_idempotency.recovery.quarantine import reverify
from tests.app.models import Effect

from .conftest import FULL, PROVIDERS, RIGHT, WRONG, happened, send

pytestmark = pytest.mark.django_db(transaction=True)

Configure = Callable[..., None]
COUNT = 300 if FULL else 60


@pytest.fixture
def ids(client: Client, configure: Configure) -> list[str]:
    """Let deliveries of all providers be refused, and mend the secrets."""
    configure(WRONG)
    found = [f"evt_{number:03}" for number in range(COUNT)]
    for number, event_id in enumerate(found):
        assert send(client, PROVIDERS[number % 5], event_id).status_code == 401
    configure(RIGHT)
    return found


def start(database_url: str, seconds: float) -> subprocess.Popen[str]:
    """A run in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.quarantine.reverifying"],
        env={
            **os.environ,
            "DATABASE_URL": database_url,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "HANDLER_SECONDS": str(seconds),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(count: int, process: subprocess.Popen[str]) -> None:
    """Wait until so many events have had their effect."""
    deadline = time.monotonic() + 60
    while Effect.objects.count() < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("kills", [5 if FULL else 2])
def test_a_run_that_is_killed_is_finished_by_the_next(
    database_url: str, ids: list[str], handlers: Any, kills: int
) -> None:
    for number in range(kills):
        process = start(database_url, 0.02)
        try:
            wait_for(Effect.objects.count() + 5 + number, process)
        finally:
            process.kill()
            process.communicate()
    assert 0 < Effect.objects.count() < COUNT
    handlers.add(lambda event: Effect.objects.create(event_id=event.event_id))
    deadline = time.monotonic() + 30
    while QuarantinedDelivery.objects.exists():
        # The database may take a moment to notice that the process is gone, and its locks.
        reverify()
        assert time.monotonic() < deadline
    assert happened() == ids
    assert WebhookEvent.objects.count() == COUNT


def test_several_at_once_do_no_harm(database_url: str, ids: list[str]) -> None:
    runs = [start(database_url, 0.002) for _ in range(3)]
    ended = [run.communicate(timeout=120) for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], ended
    processed = [int(out.split()[0]) for out, _ in ended]
    assert sum(processed) == COUNT
    assert happened() == ids
    left = QuarantinedDelivery.objects.count()
    assert left == sum(int(out.split()[2]) for out, _ in ended) == 0
    assert WebhookDelivery.objects.filter(outcome="processed").count() == COUNT


@contextmanager
def broken(word: str, times: int) -> Iterator[list[int]]:
    """Let so many statements with a word in it fail."""
    left = [times]

    def fail(execute: Any, sql: str, *rest: Any) -> Any:
        if left[0] and word in sql:
            left[0] -= 1
            raise OperationalError("disk full")
        return execute(sql, *rest)

    with connection.execute_wrapper(fail):
        yield left


def test_a_crash_between_the_commit_and_the_deletion_runs_nothing_twice(
    ids: list[str], effects: None
) -> None:
    """The delete fails, as if the process were killed just before it."""
    with broken("DELETE FROM", 2) as left:
        report = reverify(limit=2)
    assert left == [0]
    assert (len(happened()), QuarantinedDelivery.objects.count()) == (2, COUNT)
    assert report.postponed == 2 and "disk full" in report.problems[0]
    report = reverify()
    assert (report.duplicates, report.processed) == (2, COUNT - 2)
    assert happened() == ids
    assert not QuarantinedDelivery.objects.exists()


def test_a_database_that_fails_for_good_ends_the_run_early(ids: list[str], effects: None) -> None:
    with broken("INSERT INTO", 1000):
        report = reverify()
    assert report.stopped and report.looked_at == report.postponed == 3
    assert (happened(), QuarantinedDelivery.objects.count()) == ([], COUNT)
    assert reverify().processed == COUNT


def test_one_that_fails_does_not_hold_up_the_others(ids: list[str], effects: None) -> None:
    with broken("INSERT INTO", 1):
        report = reverify()
    assert (report.postponed, report.processed, report.stopped) == (1, COUNT - 1, False)
    assert reverify().processed == 1
    assert happened() == ids


def test_a_quarantine_that_cannot_be_written_is_in_nobodys_way(
    client: Client, configure: Configure, caplog: pytest.LogCaptureFixture
) -> None:
    configure(WRONG, STORE_DELIVERIES=False)
    with broken("quarantineddelivery", 9):
        assert send(client, "stripe").status_code == 401
    assert "webhook not quarantined: OperationalError" in caplog.text
