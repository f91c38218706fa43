"""What real commits and rollbacks make of an event."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction
from django.test import Client

from django_webhook_idempotency.models import HandlerRun, WebhookDelivery, WebhookEvent
from tests.app.models import Effect
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)

connection: Any = connections["default"]


def outcomes() -> list[str]:
    return list(WebhookDelivery.objects.order_by("id").values_list("outcome", flat=True))


class Meanwhile:
    """Delivers a copy from another thread, with a connection of its own."""

    def __init__(self, provider: str = "sangho") -> None:
        self.answers: list[Any] = []
        self.thread = threading.Thread(target=self._run, args=(provider,))

    def _run(self, provider: str) -> None:
        try:
            self.answers.append(deliver(Client(), provider))
        finally:
            connections.close_all()

    def start(self) -> Meanwhile:
        self.thread.start()
        return self

    def answer(self) -> Any:
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.answers[0]


@pytest.fixture
def short_wait(settings: Any) -> None:
    settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, "WAIT": 0.2}


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize(("provider", "status"), [("sangho", 503), ("github", 409)])
def test_a_copy_while_the_first_runs(
    client: Client, handlers: Any, short_wait: None, atomic: bool, provider: str, status: int
) -> None:
    """WB-014, WB-018: never a 2xx while the first can still fail, and never a second run."""
    copies: list[Any] = []

    def slow(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id)
        copies.append(Meanwhile(provider).start().answer())

    handlers.add(slow, atomic=atomic)
    started = time.monotonic()
    assert deliver(client, provider).json()["status"] == "processed"
    assert time.monotonic() - started < 10, "the wait has no bound"
    (copy,) = copies
    assert copy.status_code == status
    assert ("Retry-After" in copy.headers) == (status == 503)
    assert Effect.objects.count() == 1
    assert deliver(client, provider).json()["status"] == "duplicate"


@pytest.mark.parametrize("atomic", [True, False])
def test_a_copy_waits_for_a_first_that_ends_soon(
    client: Client, handlers: Any, atomic: bool
) -> None:
    started = threading.Event()
    copy = Meanwhile()

    def soon(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id)
        started.set()
        threading.Event().wait(0.3)

    handlers.add(soon, atomic=atomic)
    first = Meanwhile().start()
    assert started.wait(10)
    copy.start()
    assert {first.answer().json()["status"], copy.answer().json()["status"]} == {
        "processed",
        "duplicate",
    }
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("atomic", [True, False])
def test_a_copy_runs_the_event_when_the_first_fails(
    client: Client, handlers: Any, atomic: bool
) -> None:
    """WB-014: the copy that waited takes the event over."""
    started = threading.Event()

    def fail_first(event: WebhookEvent) -> None:
        if not started.is_set():
            started.set()
            threading.Event().wait(0.3)
            raise ValueError("broken")
        Effect.objects.create(event_id=event.event_id)

    handlers.add(fail_first, atomic=atomic)
    first = Meanwhile().start()
    assert started.wait(10)
    copy = Meanwhile().start()
    statuses = sorted([first.answer().status_code, copy.answer().status_code])
    assert statuses[0] == 200
    assert Effect.objects.count() == 1
    assert WebhookEvent.objects.get().status == "processed"


def test_a_commit_that_fails_is_a_failure(client: Client, handlers: Any, monkeypatch: Any) -> None:
    """The error of a deferred constraint comes with the commit; nothing may be half there."""
    commit = connection._commit
    fails = [True]

    def refuse() -> None:
        if fails:
            fails.clear()
            raise IntegrityError("deferred constraint")
        commit()

    def handler(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id)
        if fails:
            monkeypatch.setattr(connection, "_commit", refuse)

    handlers.add(handler)
    assert deliver(client, "sangho").status_code == 500
    assert not Effect.objects.exists()
    assert WebhookEvent.objects.get().last_error == "IntegrityError: deferred constraint"
    assert deliver(client, "sangho").json()["status"] == "processed"
    assert Effect.objects.count() == 1


def test_an_answer_to_the_commit_that_is_lost(
    client: Client, handlers: Any, monkeypatch: Any
) -> None:
    """The commit was applied and the connection broke: the event is processed, once."""
    commit = connection._commit
    breaks = [True]

    def commit_and_break() -> None:
        commit()
        if breaks:
            breaks.clear()
            connection.close()
            raise connection.Database.OperationalError("server closed the connection")

    def handler(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id)
        monkeypatch.setattr(connection, "_commit", commit_and_break)

    handlers.add(handler)
    answer = deliver(client, "sangho")
    assert (answer.status_code, answer.json()["status"]) == (200, "processed")
    assert Effect.objects.count() == 1
    assert outcomes() == ["processed"]


def test_a_function_after_the_commit_that_fails(client: Client, handlers: Any, caplog: Any) -> None:
    """What the handler left for `on_commit` cannot undo the event; the log says that it failed."""

    def mail() -> None:
        raise RuntimeError("no mail")

    def handler(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id)
        transaction.on_commit(mail)

    handlers.add(handler)
    answer = deliver(client, "sangho")
    assert (answer.status_code, answer.json()["status"]) == (200, "processed")
    assert outcomes() == ["processed"]
    assert "came with its commit or after it" in caplog.text
    assert deliver(client, "sangho").json()["status"] == "duplicate"
    assert Effect.objects.count() == 1


def test_a_swallowed_database_error_is_a_failure(client: Client, handlers: Any) -> None:
    """WB-037: a handler that hides a broken transaction must not pass for done."""

    def handler(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id)
        try:
            with transaction.atomic(savepoint=False):
                raise IntegrityError("hidden")
        except IntegrityError:
            pass

    handlers.add(handler)
    assert deliver(client, "sangho").status_code == 500
    assert not Effect.objects.exists()
    assert HandlerRun.objects.get().error_class == "TransactionManagementError"
    assert WebhookEvent.objects.get().status == "failed"


@pytest.mark.parametrize("atomic", [True, False])
def test_a_storage_that_is_away_asks_for_another_delivery(
    client: Client, handlers: Any, monkeypatch: Any, atomic: bool
) -> None:
    """DESIGN §3: 503, and nothing half written."""
    handlers.add(lambda event: Effect.objects.create(event_id=event.event_id), atomic=atomic)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise connection.Database.OperationalError("connection refused")

    connection.close()
    with monkeypatch.context() as patch:
        patch.setattr(connection, "get_new_connection", refuse)
        answer = deliver(client, "sangho")
    assert (answer.status_code, answer.json()) == (503, {"status": "unavailable"})
    assert answer.headers["Retry-After"]
    assert not Effect.objects.exists()
    assert not WebhookEvent.objects.exists()
    assert deliver(client, "sangho").json()["status"] == "processed"


def test_a_redis_that_is_away_asks_for_another_delivery(
    client: Client, handlers: Any, settings: Any
) -> None:
    """WB-025: an outage of the lease store is no duplicate."""
    settings.WEBHOOK_IDEMPOTENCY = {
        **settings.WEBHOOK_IDEMPOTENCY,
        "STORE": "redis",
        "REDIS_URL": "redis://127.0.0.1:1/0",
    }
    handlers.add(lambda event: Effect.objects.create(event_id=event.event_id), atomic=False)
    answer = deliver(client, "sangho")
    assert (answer.status_code, answer.json()) == (503, {"status": "unavailable"})
    assert not WebhookEvent.objects.exists()


def test_attempts_at_a_deadlock(client: Client, handlers: Any) -> None:
    """WB-046: the database undid the transaction for another; it is run again at once."""
    tries = []

    def deadlocked(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id)
        tries.append(event.pk)
        if len(tries) < 3:
            raise ValueError("wrapped") from _deadlock()

    handlers.add(deadlocked)
    assert deliver(client, "sangho").json()["status"] == "processed"
    assert len(tries) == 3
    assert Effect.objects.count() == 1


def test_attempts_at_a_deadlock_beside_a_leased_handler(client: Client, handlers: Any) -> None:
    tries = []

    def deadlocked(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id)
        tries.append(event.pk)
        if len(tries) < 3:
            raise _deadlock()

    handlers.add(deadlocked)
    handlers.add(lambda event: None, atomic=False)
    assert deliver(client, "sangho").json()["status"] == "processed"
    assert len(tries) == 3
    assert Effect.objects.count() == 1


def _deadlock() -> Exception:
    from django.db import OperationalError

    return OperationalError(1213, "Deadlock found when trying to get lock")


def test_a_deadlock_that_stays_is_answered_503(client: Client, handlers: Any) -> None:
    def deadlocked(event: WebhookEvent) -> None:
        raise _deadlock()

    handlers.add(deadlocked)
    answer = deliver(client, "sangho")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]
    assert WebhookEvent.objects.get().status == "failed"


def test_a_process_that_ends_in_an_atomic_handler_leaves_the_event(
    client: Client, handlers: Any
) -> None:
    """A server's time limit ends it with SystemExit; GitHub would not send the event again."""

    def out_of_time(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id)
        raise SystemExit(1)

    handlers.add(out_of_time)
    with pytest.raises(SystemExit):
        deliver(client, "github")
    assert not Effect.objects.exists()
    event = WebhookEvent.objects.get()
    assert (event.status, event.last_error) == ("failed", "SystemExit: 1")


def test_a_provider_that_hangs_up_leaves_the_event(handlers: Any) -> None:
    """The cancelled coroutine is a failure that is stored, not a loss without a trace."""
    import asyncio

    from asgiref.sync import async_to_sync
    from django.test import AsyncRequestFactory

    from django_webhook_idempotency.views import AsyncWebhookView
    from tests.deliveries import body_of, signed_headers

    started = threading.Event()

    async def slow(event: WebhookEvent) -> None:
        await Effect.objects.acreate(event_id=event.event_id)
        started.set()
        await asyncio.sleep(20)

    handlers.add(slow)
    view: Any = AsyncWebhookView.as_view(provider="github")
    body = body_of("github", "evt_1")
    request = AsyncRequestFactory().post(
        "/", body, "application/json", headers=signed_headers("github", body, "evt_1")
    )

    async def hang_up() -> None:
        task = asyncio.ensure_future(view(request))
        while not started.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])

    async_to_sync(hang_up)()
    assert not Effect.objects.exists()
    event = WebhookEvent.objects.get()
    assert (event.status, event.last_error.partition(":")[0]) == ("failed", "HandlerCancelled")


def test_a_commit_behind_djangos_back_is_no_success(client: Client, handlers: Any) -> None:
    """DDL on MariaDB commits by itself: the row said processed, and then the handler failed."""

    def commits_and_fails(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id)
        with connection.cursor() as cursor:
            cursor.execute("COMMIT")
        raise ValueError("broken")

    handlers.add(commits_and_fails)
    assert deliver(client, "github").status_code == 500
    event = WebhookEvent.objects.get()
    assert (event.status, event.attempts, event.last_error) == ("failed", 1, "ValueError: broken")


def test_an_error_that_cannot_say_what_it_is(client: Client, handlers: Any) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def fail(event: WebhookEvent) -> None:
        raise Mute

    handlers.add(fail)
    assert deliver(client, "github").status_code == 500
    assert WebhookEvent.objects.get().last_error == "Mute: (its text cannot be read)"


def test_a_redis_that_is_away_does_not_hide_what_is_finished(
    client: Client, handlers: Any, settings: Any
) -> None:
    handlers.add(lambda event: None, atomic=False)
    deliver(client, "sangho")
    settings.WEBHOOK_IDEMPOTENCY = {
        **settings.WEBHOOK_IDEMPOTENCY,
        "STORE": "redis",
        "REDIS_URL": "redis://127.0.0.1:1/0",
    }
    assert deliver(client, "sangho").json()["status"] == "duplicate"
