"""The example project: its settings, and the shop behind a real server on this run's database."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from django_webhook_idempotency.models import HandlerRun, WebhookEvent
from django_webhook_idempotency.providers import provider_class
from example_project.demo.server import Server
from tests.deliveries import body_of, signed_headers

ROOT = Path(__file__).resolve().parent.parent
PROVIDERS = ["sangho", "github", "stripe", "slack", "standard_webhooks"]
SECRETS = {
    f"WEBHOOK_SECRET_{provider.upper()}": settings.WEBHOOK_IDEMPOTENCY["PROVIDERS"][provider][
        "SECRETS"
    ][0]
    for provider in PROVIDERS
}


VARIABLES = {"CELERY_BROKER_URL", "DATABASE_URL", "DEBUG", "REDIS_URL"}


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take out of the environment what the example project reads."""
    for name in list(os.environ):
        if name.startswith("WEBHOOK_") or name in VARIABLES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "example_project.settings")


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Give a function that reads the settings as they are with some variables set."""

    def read(**environment: str) -> dict[str, Any]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return runpy.run_module("example_project.settings")

    return read


class TestSettings:
    def test_default_is_a_sqlite_file_that_many_can_share(self, settings_of):
        database = settings_of()["DATABASES"]["default"]
        assert database["ENGINE"] == "django.db.backends.sqlite3"
        assert Path(database["NAME"]).parent == ROOT / "example_project"
        assert "journal_mode=WAL" in database["OPTIONS"]["init_command"]
        assert database["OPTIONS"]["timeout"] >= 5
        assert database["ATOMIC_REQUESTS"] is False

    def test_database_url(self, settings_of):
        url = "mysql://root:pass@127.0.0.1:3307/shop?connect_timeout=3"
        database = settings_of(DATABASE_URL=url)["DATABASES"]["default"]
        assert (database["NAME"], database["PORT"]) == ("shop", 3307)
        assert database["OPTIONS"] == {"charset": "utf8mb4", "connect_timeout": 3}

    def test_empty_database_url_is_none(self, settings_of):
        database = settings_of(DATABASE_URL="")["DATABASES"]["default"]
        assert database["ENGINE"] == "django.db.backends.sqlite3"

    def test_atomic_requests(self, settings_of):
        found = settings_of(WEBHOOK_ATOMIC_REQUESTS="1")
        assert found["DATABASES"]["default"]["ATOMIC_REQUESTS"] is True

    def test_takes_what_github_sends(self, settings_of):
        assert settings_of()["DATA_UPLOAD_MAX_MEMORY_SIZE"] >= provider_class("github").max_body

    def test_only_what_is_set_is_passed_on(self, settings_of):
        assert set(settings_of()["WEBHOOK_IDEMPOTENCY"]) == {"PROVIDERS"}

    def test_processing(self, settings_of):
        found = settings_of(WEBHOOK_PROCESSING="queued")["WEBHOOK_IDEMPOTENCY"]
        assert found["PROCESSING"] == "queued"

    def test_queue(self, settings_of):
        assert settings_of()["CELERY_BROKER_URL"].startswith("amqp://")
        found = settings_of(WEBHOOK_QUEUE="celery", CELERY_BROKER_URL="redis://10.0.0.1/4")
        assert found["WEBHOOK_IDEMPOTENCY"]["QUEUE"] == "celery"
        assert found["CELERY_BROKER_URL"] == "redis://10.0.0.1/4"

    def test_tasks_are_queued_in_the_database(self, settings_of):
        assert "TASKS" not in settings_of()
        found = settings_of(WEBHOOK_QUEUE="tasks")
        assert found["TASKS"]["default"]["BACKEND"] == "django_tasks_db.DatabaseBackend"
        assert "django_tasks_db" in found["INSTALLED_APPS"]

    def test_redis_keeps_the_leases(self, settings_of):
        found = settings_of(REDIS_URL="redis://10.0.0.1/3")["WEBHOOK_IDEMPOTENCY"]
        assert (found["STORE"], found["REDIS_URL"]) == ("redis", "redis://10.0.0.1/3")

    @pytest.mark.parametrize(("text", "on"), [("", True), ("1", True), ("off", False)])
    def test_debug(self, settings_of, text, on):
        assert settings_of(**SECRETS, DEBUG=text)["DEBUG"] is on

    def test_debug_that_is_neither(self, settings_of):
        with pytest.raises(ImproperlyConfigured, match="DEBUG is neither on nor off"):
            settings_of(DEBUG="maybe")


class TestSecrets:
    def test_public_ones_where_nothing_is_set(self, settings_of):
        found = settings_of()
        for provider in PROVIDERS:
            secrets = found["WEBHOOK_IDEMPOTENCY"]["PROVIDERS"][provider]["SECRETS"]
            assert secrets == [found["DEMO_SECRETS"][provider]]

    def test_several_separated_by_commas(self, settings_of):
        found = settings_of(WEBHOOK_SECRET_STRIPE="whsec_new, whsec_old")["WEBHOOK_IDEMPOTENCY"]
        assert found["PROVIDERS"]["stripe"]["SECRETS"] == ["whsec_new", "whsec_old"]

    @pytest.mark.parametrize("text", ["", " ", "whsec_new,"])
    def test_empty_one_is_refused(self, settings_of, text):
        with pytest.raises(ImproperlyConfigured, match="WEBHOOK_SECRET_STRIPE has an empty secret"):
            settings_of(WEBHOOK_SECRET_STRIPE=text)

    @pytest.mark.parametrize("provider", PROVIDERS)
    def test_public_one_is_refused_without_debug(self, settings_of, provider):
        others = {name: value for name, value in SECRETS.items() if provider.upper() not in name}
        with pytest.raises(ImproperlyConfigured, match=f"'{provider}' has no secret but"):
            settings_of(**others, DEBUG="0")

    def test_public_one_is_refused_without_debug_even_if_it_was_set(self, settings_of):
        public = settings_of()["DEMO_SECRETS"]["slack"]
        given = SECRETS | {"WEBHOOK_SECRET_SLACK": f"own,{public}"}
        with pytest.raises(ImproperlyConfigured, match="'slack' has no secret but"):
            settings_of(**given, DEBUG="0")

    def test_own_ones_are_enough_without_debug(self, settings_of):
        found = settings_of(**SECRETS, DEBUG="0")
        providers = found["WEBHOOK_IDEMPOTENCY"]["PROVIDERS"]
        assert providers["github"]["SECRETS"] == [SECRETS["WEBHOOK_SECRET_GITHUB"]]

    def test_secret_key_is_not_the_public_one_without_debug(self, settings_of):
        public = settings_of()["SECRET_KEY"]
        first = settings_of(**SECRETS, DEBUG="0")["SECRET_KEY"]
        assert first == settings_of()["SECRET_KEY"] != public
        assert settings_of(WEBHOOK_SECRET_SANGHO="another")["SECRET_KEY"] != first
        assert settings_of(SECRET_KEY="own")["SECRET_KEY"] == "own"


def manage(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run manage.py as a person would."""
    return subprocess.run(
        [sys.executable, str(ROOT / "example_project" / "manage.py"), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
    )


class TestProject:
    def test_manage_runs_from_anywhere(self, tmp_path):
        done = manage("check", cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    def test_no_migration_is_missing(self):
        done = manage("makemigrations", "--check", "--dry-run")
        assert done.returncode == 0, done.stdout + done.stderr

    def test_says_which_secret_is_missing(self, monkeypatch):
        monkeypatch.setenv("DEBUG", "0")
        done = manage("check")
        assert done.returncode != 0
        assert "Set WEBHOOK_SECRET_GITHUB" in done.stderr

    @pytest.mark.parametrize("module", ["wsgi", "asgi"])
    def test_gateways(self, module):
        code = f"from example_project.{module} import application; assert callable(application)"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()


class Shop:
    """The example project behind gunicorn on the database of this run."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = httpx.Client(base_url=server.url, timeout=60, trust_env=False)

    def deliver(
        self, provider: str, event_id: str, event_type: str, scope: str = "", **more: Any
    ) -> httpx.Response:
        """Send one signed delivery."""
        body = body_of(provider, event_id, event_type, **more)
        headers = signed_headers(provider, body, event_id, event_type)
        headers["Content-Type"] = "application/json"
        path = f"/webhooks/{provider}/{scope}/" if scope else f"/webhooks/{provider}/"
        return self.client.post(path, content=body, headers=headers)

    def entries(self, event_id: str) -> list[tuple[Any, ...]]:
        """What is booked for an event."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT provider, event_type, amount, currency FROM shop_ledgerentry"
                " WHERE event_id = %s",
                [event_id],
            )
            return list(cursor.fetchall())


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until something is so; fail if it never is."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.1)


def make_shop_tables() -> None:
    """Add the shop's table to this run's database, or empty it: no test cleans what it isn't of."""
    if "shop_ledgerentry" in connection.introspection.table_names():
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM shop_ledgerentry")
        return
    # Whatever secrets the first shop of this run has: some of them are wrong on purpose.
    migrated = manage("migrate", "--skip-checks", "--verbosity", "0")
    assert migrated.returncode == 0, migrated.stderr


@pytest.fixture
def shop(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Shop]:
    """Start the example project; variables come from an indirect parameter."""
    for name, value in {**SECRETS, **getattr(request, "param", {})}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DATABASE_URL", database_url)
    make_shop_tables()
    with Server(port=0, workers=2, log=tmp_path / "server.log") as server:
        shop = Shop(server)
        yield shop
        shop.client.close()


ATOMIC_REQUESTS = pytest.mark.parametrize(
    "shop", [{}, {"WEBHOOK_ATOMIC_REQUESTS": "1"}], indirect=True, ids=["plain", "atomic_requests"]
)


TWO_SECRETS = {"WEBHOOK_SECRET_STRIPE": f"new,{SECRETS['WEBHOOK_SECRET_STRIPE']}"}


@pytest.mark.slow
class TestShop:
    @ATOMIC_REQUESTS
    def test_books_each_event_of_each_provider_once(self, shop):
        for provider in PROVIDERS:
            answers = [shop.deliver(provider, f"evt_{provider}", "a.b") for _ in range(3)]
            assert [answer.json()["status"] for answer in answers] == [
                *("processed", "duplicate", "duplicate")
            ]
            assert shop.entries(f"evt_{provider}") == [(provider, "a.b", 0, "")]

    @ATOMIC_REQUESTS
    def test_fail_fails_once_and_leaves_no_entry(self, shop):
        for provider in PROVIDERS:
            event_id = f"evt_{provider}"
            failed = shop.deliver(provider, event_id, "test.fail.now")
            assert (failed.status_code, failed.json()["status"]) == (500, "failed")
            assert shop.entries(event_id) == []
            again = shop.deliver(provider, event_id, "test.fail.now")
            assert (again.status_code, again.json()["status"]) == (200, "processed")
            copy = shop.deliver(provider, event_id, "test.fail.now")
            assert (copy.status_code, copy.json()["status"]) == (200, "duplicate")
            assert len(shop.entries(event_id)) == 1
            runs = HandlerRun.objects.filter(event__event_id=event_id).order_by("number")
            assert list(runs.values_list("error_class", flat=True)) == ["FailsOnce", ""]

    @pytest.mark.parametrize("event_type", ["test.sleep.400", "test.wait.400"])
    def test_sleep_and_wait_take_their_time(self, shop, event_type):
        started = time.monotonic()
        answer = shop.deliver("github", "evt_1", event_type, action="opened")
        assert time.monotonic() - started >= 0.4
        assert answer.json()["status"] == "processed"
        assert shop.entries("evt_1") == [("github", f"{event_type}.opened", 0, "")]

    def test_killed_in_the_middle_of_a_handler(self, shop):
        cut = []

        def first() -> None:
            try:
                shop.deliver("stripe", "evt_1", "test.sleep.2000")
            except httpx.TransportError as error:
                cut.append(error)

        thread = threading.Thread(target=first)
        thread.start()
        while (pid := shop.server.pausing_in("evt_1")) is None:
            assert thread.is_alive()
            time.sleep(0.02)
        os.kill(pid, signal.SIGKILL)
        thread.join()
        assert len(cut) == 1
        assert shop.entries("evt_1") == []
        assert WebhookEvent.objects.count() == 0
        answers = [shop.deliver("stripe", "evt_1", "test.sleep.2000") for _ in range(2)]
        assert [answer.json()["status"] for answer in answers] == ["processed", "duplicate"]
        assert len(shop.entries("evt_1")) == 1

    def test_tells_scopes_apart(self, shop):
        for scope in ("tenant-a", "tenant-b", "tenant-a"):
            assert shop.deliver("stripe", "evt_1", "a.b", scope).status_code == 200
        assert len(shop.entries("evt_1")) == 2

    def test_takes_large_bodies(self, shop):
        answer = shop.deliver("github", "evt_1", "push", padding="x" * 3_000_000)
        assert answer.json()["status"] == "processed"

    def test_stranger_books_nothing(self, shop):
        body = body_of("stripe", "evt_1")
        headers = {"Content-Type": "application/json", "Stripe-Signature": "t=1,v1=00"}
        assert shop.client.post("/webhooks/stripe/", content=body, headers=headers).is_client_error
        assert shop.entries("evt_1") == []

    @pytest.mark.parametrize("shop", [TWO_SECRETS], indirect=True)
    def test_takes_the_old_secret_while_it_is_changed(self, shop):
        assert shop.deliver("stripe", "evt_1", "a.b").status_code == 200

    def test_books_amounts_where_there_are_any(self, shop):
        payment = {"amount": 5000, "currency": "xaf"}
        payloads: list[tuple[Any, int, str]] = [
            ({"object": payment}, 5000, "XAF"),
            (payment, 5000, "XAF"),
            ({"object": {"amount": -1, "currency": "EURO"}}, -1, ""),
            ({"object": {"amount": 2**63, "currency": 7}}, 0, ""),
            ({"object": {"amount": True, "currency": None}}, 0, ""),
            ({"object": [payment]}, 0, ""),
            ([payment], 0, ""),
        ]
        for number, (data, amount, currency) in enumerate(payloads):
            answer = shop.deliver("sangho", f"evt_{number}", "paid", data=data)
            assert answer.status_code == 200
            assert shop.entries(f"evt_{number}") == [("sangho", "paid", amount, currency)]

    def test_writes_before_it_sleeps_and_waits_before_it_writes(self, shop):
        code = """
import json, sys, django
django.setup()
from django_webhook_idempotency.models import WebhookEvent
from example_project.shop import models, webhooks
booked = []
webhooks.time.sleep = lambda seconds: booked.append(models.LedgerEntry.objects.count())
for name in ("test.wait.5", "test.sleep.5"):
    webhooks.book(WebhookEvent(event_type=name, body=b"{}", attempts=1))
print(json.dumps(booked))
"""
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
        assert json.loads(done.stdout) == [0, 2], done.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize("shop", [{"WEBHOOK_PROCESSING": "queued"}], indirect=True)
def test_a_worker_books_what_the_shop_has_accepted(shop: Shop, tmp_path: Path) -> None:
    answers = [shop.deliver("stripe", "evt_1", "a.b") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 200]
    assert shop.deliver("github", "evt_2", "test.fail").status_code == 202
    assert shop.entries("evt_1") == []
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, str(ROOT / "example_project" / "manage.py"), "webhook_worker"],
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(lambda: len(shop.entries("evt_1")) == len(shop.entries("evt_2")) == 1)
    finally:
        worker.terminate()
        assert worker.wait(30) == 0
