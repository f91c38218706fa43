"""Workers that are killed, frozen, poisoned and cut off: each event still takes effect once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client

from django_webhook_idempotency.models import HandlerRun, WebhookEvent
from tests.app.models import Effect
from tests.deliveries import deliver

from .conftest import only_when_full
from .journal import Journal
from .ledger_state import effects
from .provider import PROVIDERS, fresh
from .proxy import Wire, wired
from .workers import Work, Worker

pytestmark = pytest.mark.django_db(transaction=True)

not_on_sqlite = pytest.mark.only_on("postgresql", "mysql")
KINDS = ["hammer.atomic", "hammer.leased"]


@pytest.fixture(autouse=True)
def queued(settings: Any) -> None:
    """Let this process store for the workers."""
    settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, "PROCESSING": "queued"}


@pytest.fixture
def journal(tmp_path: Any) -> Journal:
    """What the workers' handlers wrote down."""
    return Journal(tmp_path / "journal")


@pytest.fixture
def store(client: Client, handlers: Any) -> Callable[..., str]:
    """Give a function that stores an event which the workers' handlers want."""
    handlers.add(lambda event: None, pattern="hammer.*")

    def store(kind: str, **plan: Any) -> str:
        provider, event_id = random.choice(PROVIDERS), fresh("queue")
        # On SQLite somebody's transaction may be in the way for a while.
        wait_until(lambda: deliver(client, provider, event_id, kind, plan=plan).status_code < 300)
        return event_id

    return store


def wait_until(reached: Callable[[], Any], timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not reached():
        assert time.monotonic() < deadline, list(
            WebhookEvent.objects.values_list("status", "attempts", "last_error")
        )
        time.sleep(0.02)


def all_processed() -> bool:
    return not WebhookEvent.objects.exclude(status="processed").exists()


def assert_fair_play(journal: Journal, workers: list[Worker], dead: set[int]) -> None:
    """Never two at once, no run that no death explains, no traceback."""
    assert journal.lines("overlap") == []
    last: dict[str, int] = {}
    for line in journal.lines("enter"):
        assert last.get(line.event) in {None, *dead}, f"{line.event} ran without need"
        last[line.event] = line.pid
    assert [worker.log for worker in workers if "Traceback" in worker.log] == []


class TestKills:
    @pytest.mark.parametrize("kind", KINDS)
    def test_killed_at_random(
        self,
        work: Work,
        store: Callable[..., str],
        journal: Journal,
        kind: str,
        size: Callable[[int, int], int],
        figures: Callable[..., None],
    ) -> None:
        """WB-009, WB-017: `kill -9` inside of handlers, and somebody starts the worker again."""
        options = {"LEASE": 1.5, "BACKOFF": 0.1, "MAX_ATTEMPTS": 100}
        crew = [work("--concurrency", "2", **options) for _ in range(2)]
        everybody, dead = list(crew), set[int]()
        kills, wanted = 0, size(200, 4)
        while kills < wanted:
            if WebhookEvent.objects.exclude(status="processed").count() < 10:
                for _ in range(10):
                    store(kind, before=random.randint(0, 40), after=random.randint(0, 40))
            running = [each for each in crew if each.pid in journal.running()]
            if running:
                victim = random.choice(running)
                time.sleep(random.uniform(0, 0.05))
                victim.kill()
                dead.add(victim.pid)
                kills += 1
                crew[crew.index(victim)] = work("--concurrency", "2", **options)
                everybody.append(crew[-1])
            time.sleep(random.uniform(0, 0.02))
        wait_until(all_processed)
        counted, runs = effects(), journal.lines("enter")
        figures(events=len(counted), kills=kills, runs=len(runs), effects=counted.total())
        assert_fair_play(journal, everybody, dead)
        ids = set(WebhookEvent.objects.values_list("event_id", flat=True))
        assert set(counted) == ids
        assert len(runs) > len(ids), "no kill was inside of a run, so nothing was shown"
        if kind == "hammer.atomic":
            assert set(counted.values()) == {1}
        # One end for each event, and it is in the row of a first attempt or in that of its run.
        ended = WebhookEvent.objects.filter(handled_by="").values_list("event_id", flat=True)
        succeeded = HandlerRun.objects.filter(error_class="")
        assert sorted(succeeded.values_list("event__event_id", flat=True)) == sorted(ended)

    @pytest.mark.once
    def test_a_poisoned_event_takes_nobody_with_it(
        self, work: Work, store: Callable[..., str], journal: Journal
    ) -> None:
        """It ends whatever runs beside it, so in the end it runs alone, and then no more."""
        good = {store("hammer.leased", before=1000) for _ in range(3)}
        bad = store("hammer.poison")
        deaths = 0
        while WebhookEvent.objects.filter(status__in=["pending", "processing", "failed"]).exists():
            worker = work("--concurrency", "4", LEASE=1, MAX_ATTEMPTS=3)
            while worker.process.poll() is None and not is_over():
                time.sleep(0.02)
            deaths += worker.process.poll() is not None
            assert deaths <= 3
        assert deaths == 3
        statuses = dict(WebhookEvent.objects.values_list("event_id", "status"))
        assert statuses == {**dict.fromkeys(good, "processed"), bad: "dead"}
        assert "WorkerLost" in WebhookEvent.objects.get(event_id=bad).last_error
        assert len(journal.lines("enter", bad)) == 3
        assert set(effects()) == good


def is_over() -> bool:
    return not WebhookEvent.objects.exclude(status__in=["processed", "dead"]).exists()


class TestFrozen:
    @pytest.mark.parametrize(
        "kind",
        ["hammer.leased", pytest.param("hammer.atomic", marks=[not_on_sqlite, only_when_full])],
    )
    @pytest.mark.parametrize("wakes", ["after", pytest.param("during", marks=only_when_full)])
    def test_a_frozen_worker_cannot_finish(
        self, work: Work, store: Callable[..., str], journal: Journal, kind: str, wakes: str
    ) -> None:
        """WB-017: its lease runs out, another runs the event, and it wakes up too late."""
        workers = [work("--concurrency", "1", LEASE=1) for _ in range(2)]
        for worker in workers:
            worker.wait_for_line("started")
        event_id = store(kind, after=1500)
        wait_until(lambda: journal.lines("wrote", event_id))
        asleep = journal.lines("wrote", event_id)[0].pid
        os.kill(asleep, signal.SIGSTOP)
        try:
            wait_until(lambda: len(journal.lines("enter", event_id)) == 2)
            if wakes == "after":
                wait_until(all_processed)
        finally:
            os.kill(asleep, signal.SIGCONT)
        wait_until(lambda: len(journal.lines("leave", event_id)) == 2)
        wait_until(all_processed)
        assert [worker.stop() for worker in workers] == [0, 0]
        stored = WebhookEvent.objects.get()
        assert (stored.attempts, stored.lease_token) == (2, "")
        runs = HandlerRun.objects.order_by("number").values_list("number", "error_class")
        assert list(runs) == [(1, "WorkerLost"), (2, "")]
        assert Effect.objects.count() == (2 if kind == "hammer.leased" else 1)
        assert "Traceback" not in workers[0].log + workers[1].log


@pytest.fixture
def wire(database_url: str) -> Iterator[tuple[Wire, str]]:
    with wired(database_url) as wire_and_url:
        yield wire_and_url


def end_all_connections() -> None:
    """What a restart of the database does to its clients."""
    name = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = %s AND pid <> pg_backend_pid()",
                [name],
            )
            return
        cursor.execute(
            "SELECT id FROM information_schema.processlist WHERE db = %s AND id <> CONNECTION_ID()",
            [name],
        )
        for (number,) in cursor.fetchall():
            with suppress(OperationalError):  # it has ended by itself
                cursor.execute("KILL %s", [number])


@not_on_sqlite
class TestConnections:
    @pytest.mark.parametrize("kind", KINDS)
    def test_broken_at_any_statement_and_all_at_once(
        self,
        work: Work,
        store: Callable[..., str],
        journal: Journal,
        wire: tuple[Wire, str],
        kind: str,
        size: Callable[[int, int], int],
        figures: Callable[..., None],
    ) -> None:
        line, url = wire
        options = {"LEASE": 2, "BACKOFF": 0.1, "MAX_ATTEMPTS": 100}
        workers = [work("--concurrency", "2", url=url, **options) for _ in range(2)]
        for worker in workers:
            worker.wait_for_line("started")
        line.cut_at_random(0.03)
        sent = [store(kind, after=5) for _ in range(size(600, 40))]
        for _ in range(3):
            time.sleep(0.5)
            end_all_connections()
        wait_until(lambda: all_processed() or sum(line.cuts.values()) > size(1000, 60))
        line.cut_at_random(0)
        wait_until(all_processed)
        figures(
            kind=kind,
            events=len(sent),
            cuts=dict(line.cuts),
            runs=len(journal.lines("enter")),
            effects=effects().total(),
        )
        assert line.cuts.total() > 3, "nothing was cut, so nothing was shown"
        assert [worker.process.poll() for worker in workers] == [None, None]
        assert journal.lines("overlap") == []
        assert set(effects()) == set(sent)
        if kind == "hammer.atomic":
            assert set(effects().values()) == {1}
        assert [worker.stop() for worker in workers] == [0, 0]
        assert [worker.log for worker in workers if "Traceback" in worker.log] == []
