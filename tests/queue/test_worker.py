"""`manage.py webhook_worker` in processes of its own: signals, options, probes, the bell."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.dispatch import worker as worker_module
from django_webhook_idempotency.models import HandlerRun, WebhookEvent
from tests.app.models import Effect
from tests.deliveries import deliver
from tests.hammer.journal import Journal
from tests.hammer.provider import fresh
from tests.hammer.proxy import wired
from tests.hammer.sqlite import leave_wal
from tests.hammer.workers import Work, crew

pytestmark = pytest.mark.django_db(transaction=True)

#: SQLite has one writer: nobody can give an event back while a transaction is open.
not_on_sqlite = pytest.mark.only_on("postgresql", "mysql")


@pytest.fixture
def work(tmp_path: Path, database_url: str) -> Iterator[Work]:
    """Give a function that starts a worker."""
    with crew(tmp_path, database_url) as work:
        yield work
    leave_wal()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """What the workers' handlers wrote down."""
    return Journal(tmp_path / "journal")


@pytest.fixture
def store(client: Client, handlers: Any) -> Callable[..., str]:
    """Give a function that stores an event which the workers' handlers want."""
    handlers.add(lambda event: None, pattern="hammer.*")
    handlers.add(lambda event: None, pattern="github.*")

    def store(kind: str = "hammer.atomic", provider: str = "stripe", **plan: Any) -> str:
        event_id = fresh("work")
        answer = deliver(client, provider, event_id, kind, plan=plan)
        assert answer.json()["status"] == "accepted"
        return event_id

    return store


def wait_until(reached: Callable[[], Any], timeout: float = 20) -> Any:
    deadline = time.monotonic() + timeout
    while not (value := reached()):
        assert time.monotonic() < deadline, "It did not come to that."
        time.sleep(0.01)
    return value


def wait_for_status(status: str, count: int = 1, timeout: float = 20) -> None:
    wait_until(lambda: WebhookEvent.objects.filter(status=status).count() == count, timeout)


def entered(journal: Journal, event_id: str, count: int = 1) -> Callable[[], bool]:
    return lambda: len(journal.lines("enter", event_id)) >= count


class TestRunning:
    def test_says_what_it_is_and_what_it_did(self, work: Work, store: Any) -> None:
        """One line each at once, though nobody flushes a pipe for it."""
        worker = work("--concurrency", "2")
        line = worker.wait_for_line("started: .*")[0]
        assert line == "started: providers=all concurrency=2 engine=database"
        store()
        wait_for_status("processed")
        assert worker.stop() == 0
        assert "stopped: runs=1 failed=0 given_back=0 left=0" in worker.log
        assert Effect.objects.count() == 1
        assert "Traceback" not in worker.log

    def test_once_ends_when_nothing_is_due(self, work: Work, store: Any) -> None:
        for _ in range(5):
            store()
        store("hammer.leased", failures=1)
        worker = work("--once", BACKOFF=600)
        assert worker.ended() == 0
        assert "runs=6 failed=1" in worker.log
        assert Effect.objects.count() == 6
        assert WebhookEvent.objects.get(status="failed").attempts == 1
        assert work("--once").ended() == 0

    def test_once_says_that_the_database_is_away(self, work: Work, tmp_path: Path) -> None:
        url = {
            "sqlite": f"sqlite:///{tmp_path}/none/db.sqlite3",
            "postgresql": "postgres://nobody@127.0.0.1:1/none",
            "mysql": "mysql://nobody@127.0.0.1:1/none",
        }[connection.vendor]
        worker = work("--once", url=url)
        assert worker.ended() == 1
        # On SQLite, a check of Django 6.1's own looks at the database before the worker does.
        said = "" if connection.vendor == "sqlite" else "CommandError: The worker ended: "
        assert f"{said}OperationalError" in worker.log

    def test_runs_handlers_side_by_side(self, work: Work, store: Any, journal: Journal) -> None:
        worker = work("--concurrency", "3")
        worker.wait_for_line("started")
        for _ in range(6):
            store("hammer.leased", before=500)
        wait_for_status("processed", 6)
        running = most = 0
        for line in journal.lines():
            running += (line.word == "enter") - (line.word == "leave")
            most = max(most, running)
        assert most == 3

    def test_only_some_providers(self, work: Work, store: Any) -> None:
        wanted, other = store(provider="sangho"), store(provider="stripe")
        assert work("--once", "--providers", "sangho", "slack").ended() == 0
        statuses = dict(WebhookEvent.objects.values_list("event_id", "status"))
        assert statuses == {wanted: "processed", other: "pending"}

    @pytest.mark.once
    def test_a_provider_that_nobody_knows(self) -> None:
        with pytest.raises(CommandError, match=r"'strype' is not known. Known: github, .*stripe"):
            call_command("webhook_worker", "--once", "--providers", "stripe", "strype")

    def test_what_is_due_later_is_run_then(self, work: Work, store: Any, journal: Journal) -> None:
        """Not at some next look: it sleeps no longer than until then."""
        worker = work("--concurrency", "1", BACKOFF=600)
        event_id = store("hammer.leased", failures=1)
        wait_for_status("failed")
        due = timezone.now() + timedelta(seconds=2.5)
        WebhookEvent.objects.update(next_attempt_at=due)
        store()
        wait_for_status("processed")  # now it has looked
        wait_until(entered(journal, event_id, 2))
        assert -0.05 < (timezone.now() - due).total_seconds() < 0.7
        worker.stop()

    @pytest.mark.once
    def test_a_handler_that_exits_ends_nothing_else(self, work: Work, store: Any) -> None:
        worker = work("--concurrency", "1", BACKOFF=600)
        leaving = store("hammer.exit")
        staying = store("hammer.atomic")
        wait_for_status("processed")
        wait_for_status("failed")
        assert WebhookEvent.objects.get(event_id=staying).status == "processed"
        stored = WebhookEvent.objects.get(event_id=leaving)
        assert stored.last_error == "HandlerLeft: The handler raised SystemExit."
        assert HandlerRun.objects.get().number == 1
        assert worker.stop() == 0


class TestStopping:
    @pytest.mark.parametrize(
        ("number", "kind"),
        [(signal.SIGTERM, "hammer.atomic"), (signal.SIGINT, "hammer.leased")],
    )
    def test_lets_a_handler_finish(
        self, work: Work, store: Any, journal: Journal, kind: str, number: int
    ) -> None:
        event_id, waiting = store(kind, after=700), store(kind)
        worker = work("--concurrency", "1")
        wait_until(entered(journal, event_id))
        worker.signal(number)
        assert worker.ended() == 0
        statuses = dict(WebhookEvent.objects.values_list("event_id", "status"))
        assert statuses == {event_id: "processed", waiting: "pending"}
        assert "runs=1 failed=0 given_back=0 left=0" in worker.log

    @pytest.mark.parametrize(
        "kind", ["hammer.leased", pytest.param("hammer.atomic", marks=not_on_sqlite)]
    )
    def test_gives_back_what_takes_too_long(
        self, work: Work, store: Any, journal: Journal, kind: str
    ) -> None:
        """Another worker runs it at once, as if the first had never had it."""
        first = work("--concurrency", "2", "--grace", "0.3")
        long = store(kind, before=60_000)
        wait_until(entered(journal, long))
        started = time.monotonic()
        assert first.stop() == 0
        assert 0.2 < time.monotonic() - started < 5
        assert "given_back=1 left=0" in first.log
        stored = WebhookEvent.objects.get()
        assert (stored.status, stored.attempts, stored.lease_token) == ("pending", 0, "")
        second = work("--concurrency", "2", "--grace", "0")
        wait_until(entered(journal, long, 2))
        assert second.stop() == 0
        assert journal.lines("overlap") == []
        assert Effect.objects.count() == 0

    @pytest.mark.only_on("sqlite")
    def test_says_what_it_could_not_give_back(
        self, work: Work, store: Any, journal: Journal
    ) -> None:
        """The handler's transaction has SQLite's lock; its lease has to run out."""
        worker = work("--grace", "0.1", LEASE=3)
        event_id = store("hammer.atomic", after=60_000)
        wait_until(lambda: journal.lines("wrote", event_id))
        assert worker.stop() == 1
        assert "given_back=0 left=1" in worker.log
        assert Effect.objects.count() == 0
        WebhookEvent.objects.update(body=WebhookEvent.objects.get().body.replace(b"60000", b"0"))
        assert WebhookEvent.objects.get().status == "processing"
        work()
        wait_for_status("processed")
        assert Effect.objects.count() == 1

    @pytest.mark.once
    def test_a_second_signal_waits_no_longer(
        self, work: Work, store: Any, journal: Journal
    ) -> None:
        worker = work("--grace", "600")
        event_id = store("hammer.leased", before=60_000)
        wait_until(entered(journal, event_id))
        worker.signal(signal.SIGTERM)
        time.sleep(0.5)
        assert worker.process.poll() is None
        worker.signal(signal.SIGTERM)
        assert worker.ended(5) == 0
        assert WebhookEvent.objects.get().status == "pending"

    @pytest.mark.once
    def test_stops_while_it_has_nothing_to_do(self, work: Work) -> None:
        worker = work()
        worker.wait_for_line("started")
        time.sleep(0.3)
        started = time.monotonic()
        assert worker.stop() == 0
        assert time.monotonic() - started < 3


class TestProbes:
    def test_tell_of_a_worker_that_works(self, work: Work, store: Any, journal: Journal) -> None:
        worker = work("--probe", "0", "--concurrency", "1")
        assert wait_until(lambda: worker.ask("/ready")[0] == 200)
        assert worker.ask("/live") == (200, {"status": "ok"})
        assert worker.ask("/secrets") == (404, {"status": "unknown"})
        event_id = store("hammer.leased", before=60_000)
        wait_until(entered(journal, event_id))
        worker.signal(signal.SIGTERM)
        stopping = (503, {"status": "unavailable", "why": "stopping"})
        wait_until(lambda: worker.ask("/ready") == stopping)
        assert worker.ask("/live")[0] == 200
        assert worker.stop() == 0
        assert worker.ask("/live")[0] == 0

    @not_on_sqlite
    def test_tell_of_a_database_that_is_away(
        self, work: Work, database_url: str, store: Any
    ) -> None:
        """It is no reason to end a worker, which goes on when the database is back."""
        with wired(database_url) as (wire, url):
            worker = work("--probe", "127.0.0.1:0", url=url)
            assert wait_until(lambda: worker.ask("/ready")[0] == 200)
            wire.cut_at_random(1)
            wait_until(lambda: worker.ask("/ready")[0] == 503)
            assert worker.ask("/live")[0] == 200
            store()
            wire.cut_at_random(0)
            wait_for_status("processed")
            wait_until(lambda: worker.ask("/ready")[0] == 200)
            assert Effect.objects.count() == 1
            assert "Traceback" not in worker.log

    @pytest.mark.once
    def test_a_port_that_is_taken(self, work: Work) -> None:
        port = work("--probe", "0").wait_for_line(r"probe=http://127.0.0.1:(\d+)")[1]
        with pytest.raises(CommandError, match=r"No probe can listen on 127\.0\.0\.1:"):
            call_command("webhook_worker", "--once", "--probe", port)

    @pytest.mark.once
    @pytest.mark.parametrize("text", ["web", "70000", "a:b", "::1:x", "8000:"])
    def test_no_address(self, text: str) -> None:
        with pytest.raises(CommandError, match="neither a port nor HOST:PORT"):
            call_command("webhook_worker", "--once", "--probe", text)


class TestWakeUp:
    @pytest.mark.only_on("postgresql")
    def test_postgresql_rings(self, work: Work, store: Any, journal: Journal) -> None:
        """Far below the five seconds between two looks."""
        worker = work("--probe", "0")
        wait_until(lambda: worker.ask("/ready")[0] == 200)
        waits = []
        for _ in range(4):
            time.sleep(0.5)
            stored = time.monotonic()
            event_id = store()
            wait_until(entered(journal, event_id))
            waits.append(journal.lines("enter", event_id)[0].at - stored)
        assert max(waits) < 0.4, waits

    @pytest.mark.only_on("postgresql")
    def test_a_cut_bell_rings_again(self, work: Work, store: Any, journal: Journal) -> None:
        worker = work("--probe", "0")
        wait_until(lambda: worker.ask("/ready")[0] == 200)
        query = "FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' AND datname = %s"
        name = connection.settings_dict["NAME"]

        def listening() -> int | None:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT pid {query}", [name])
                row = cursor.fetchone()
                return row and int(row[0])

        first = wait_until(listening)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [first])
        second = wait_until(lambda: (pid := listening()) != first and pid)
        assert second != first
        time.sleep(0.5)
        stored = time.monotonic()
        event_id = store()
        wait_until(entered(journal, event_id))
        assert journal.lines("enter", event_id)[0].at - stored < 0.4

    @pytest.mark.only_on("sqlite", "mysql")
    def test_looks_where_nobody_rings(self, work: Work, store: Any, journal: Journal) -> None:
        worker = work("--probe", "0")
        wait_until(lambda: worker.ask("/ready")[0] == 200)
        time.sleep(1)
        store()
        wait_for_status("processed", timeout=3)


def test_what_is_given_back_waits_for_the_process_to_be_gone() -> None:
    """Another event that is slow to be given back keeps the process, and all that runs in it."""
    assert worker_module.GIVEN_BACK_WAIT.total_seconds() > worker_module.GIVE_BACK
