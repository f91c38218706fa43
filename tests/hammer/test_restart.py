"""The database server itself is killed and started again while events come in and are drained."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_webhook_idempotency.models import WebhookEvent
from tests.app.models import Effect

from .databases import DatabaseServer, database_server
from .journal import Journal
from .provider import Campaign, Event, Tally, events
from .server import ROOT, serve
from .workers import Worker, working

pytestmark = pytest.mark.django_db(transaction=True)

WEBHOOK = {"LEASE": 1.5, "BACKOFF": 0.2, "BACKOFF_MAX": 0.5, "MAX_ATTEMPTS": 100}
SETTINGS: dict[str, Any] = {
    # Without the tests' own OPTIONS: here a commit must outlive the server.
    "DATABASE": {"CONN_MAX_AGE": 60, "OPTIONS": {}},
    "WEBHOOK_IDEMPOTENCY": WEBHOOK,
}
QUEUED: dict[str, Any] = {**SETTINGS, "WEBHOOK_IDEMPOTENCY": {**WEBHOOK, "PROCESSING": "queued"}}


@pytest.fixture(
    params=[
        pytest.param(vendor, marks=[pytest.mark.only_on(vendor), pytest.mark.service(service)])
        for vendor, service in (("postgresql", "postgres-server"), ("mysql", "mariadb-server"))
    ]
)
def own(request: pytest.FixtureRequest, database_url: str) -> Iterator[DatabaseServer]:
    """Give a server of this run's kind with the project's tables in it."""
    with database_server(connection.vendor) as server:
        environment = {
            **os.environ,
            "DATABASE_URL": server.url,
            "DJANGO_SETTINGS_MODULE": "tests.hammer.settings",
        }
        command = [sys.executable, "-m", "django", "migrate", "--run-syncdb", "-v0"]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        yield server


class Flood(threading.Thread):
    """A provider that sends new events, each until it is accepted, and stops when it is told to."""

    def __init__(self, port: int, kinds: list[str]) -> None:
        super().__init__(name="flood")
        self.stopped = threading.Event()
        self.sent: list[Event] = []
        self.tally = Tally()
        pool = [events(5000, kind, prefix=kind.rpartition(".")[2]) for kind in kinds]
        self.pool = itertools.chain.from_iterable(zip(*pool, strict=True))
        self.campaign = Campaign(port, self.deliveries(), connections=4)

    def deliveries(self) -> Iterator[Event]:
        for event in self.pool:
            if self.stopped.is_set():
                return
            self.sent.append(event)
            yield event
            time.sleep(0.01)

    def run(self) -> None:
        self.tally = self.campaign.run()

    def stop(self) -> None:
        self.stopped.set()
        self.join()


def break_and_mend(own: DatabaseServer, times: int) -> None:
    for _ in range(times):
        time.sleep(1)
        own.crash()
        time.sleep(0.5)
        own.start()
    time.sleep(1)


def wait_until_drained(own: DatabaseServer, timeout: float = 120) -> None:
    deadline = time.monotonic() + timeout
    table = WebhookEvent._meta.db_table
    sql = f"SELECT status, attempts, last_error FROM {table} WHERE status <> 'processed'"
    while left := own.rows(sql):
        assert time.monotonic() < deadline, left[:5]
        time.sleep(0.1)


def effects_of(own: DatabaseServer) -> Counter[str]:
    rows = own.rows(f"SELECT event_id FROM {Effect._meta.db_table}")
    return Counter(event_id for (event_id,) in rows)


def assert_each_took_effect(own: DatabaseServer, flood: Flood, journal: Journal) -> None:
    """None was lost; none was doubled that a transaction can undo, and no two ran at once."""
    counted, ids = effects_of(own), {event.id for event in flood.sent}
    assert flood.tally.given_up == []
    assert set(flood.tally.accepted) == ids
    assert set(counted) == ids
    atomic = {event.id for event in flood.sent if event.type == "hammer.atomic"}
    assert {key: times for key, times in counted.items() if key in atomic and times != 1} == {}
    assert journal.lines("overlap") == []


def test_queued_events_outlive_the_database(
    own: DatabaseServer,
    tmp_path: Path,
    size: Callable[[int, int], int],
    figures: Callable[..., None],
) -> None:
    """Receipts are refused meanwhile, the workers wait, and afterwards everything goes on."""
    crashes = size(10, 2)
    with ExitStack() as stack:
        server = stack.enter_context(
            serve(tmp_path, tmp_path / "server", own.url, workers=2, settings=QUEUED)
        )
        crew: list[Worker] = [
            stack.enter_context(
                working(tmp_path, tmp_path / f"worker-{number}", own.url, settings=QUEUED)
            )
            for number in range(2)
        ]
        for worker in crew:
            worker.wait_for_line("started")
        flood = Flood(server.port, ["hammer.atomic", "hammer.leased"])
        flood.start()
        try:
            break_and_mend(own, crashes)
        finally:
            flood.stop()
        wait_until_drained(own)
        tally, journal = flood.tally, server.journal
        figures(crashes=crashes, events=len(flood.sent), runs=len(journal.lines("enter")))
        assert tally.words["unavailable"] > 0, "no crash was seen, so nothing was shown"
        assert set(tally.statuses) <= {200, 202, 503}
        assert_each_took_effect(own, flood, journal)
        assert [worker.process.poll() for worker in crew] == [None, None]
        assert [worker.stop() for worker in crew] == [0, 0]
        assert [worker.log for worker in crew if "Traceback" in worker.log] == []
        assert "Traceback" not in server.log


def test_events_in_the_request_outlive_the_database(
    own: DatabaseServer,
    tmp_path: Path,
    size: Callable[[int, int], int],
    figures: Callable[..., None],
) -> None:
    """What the crash undid is refused, and the provider's next try runs it."""
    crashes = size(10, 2)
    with serve(tmp_path, tmp_path / "server", own.url, workers=2, settings=SETTINGS) as server:
        flood = Flood(server.port, ["hammer.atomic"])
        flood.start()
        try:
            break_and_mend(own, crashes)
        finally:
            flood.stop()
        figures(crashes=crashes, events=len(flood.sent), statuses=dict(flood.tally.statuses))
        assert flood.tally.words["unavailable"] > 0, "no crash was seen, so nothing was shown"
        assert_each_took_effect(own, flood, server.journal)
        assert "Traceback" not in server.log
