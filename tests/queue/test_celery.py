"""The Celery engine in one process: what it sends, what its tasks do, and what it says is wrong."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import redis
from celery import Celery, signals
from celery.contrib.testing.worker import start_worker
from django.db import connection, connections
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.dispatch.engines import celery as engine_module
from django_webhook_idempotency.dispatch.engines import courier as courier_module
from django_webhook_idempotency.dispatch.engines import queue_engine
from django_webhook_idempotency.dispatch.engines.celery import celery_app
from django_webhook_idempotency.dispatch.engines.courier import Courier, NotCarried
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.models import WebhookDelivery, WebhookEvent
from django_webhook_idempotency.names import PURGE, RUN, SWEEP
from tests.app.models import Effect
from tests.celery_apps import forget_choices, no_celery_apps
from tests.deliveries import deliver
from tests.services import AMQP_URL, REDIS_URL

from .test_runs import effect, stored

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def app(configure: Callable[..., None]) -> Iterator[Celery]:
    """Give the project's Celery app, which runs everything at once."""
    configure(QUEUE="celery")
    with no_celery_apps():
        app = Celery("project", broker="memory://", set_as_current=False)
        app.conf.task_default_queue = f"webhooks-{uuid4().hex}"
        app.conf.task_always_eager = True
        app.conf.worker_hijack_root_logger = False
        app.loader.import_task_module("django_webhook_idempotency.tasks")
        forget_choices()
        app.set_default()
        yield app


@pytest.fixture(autouse=True)
def warnings_are_seen(caplog: Any) -> None:
    """A worker changes the level of the root logger."""
    caplog.set_level(logging.WARNING, "django_webhook_idempotency")


@pytest.fixture(autouse=True)
def courier(monkeypatch: Any) -> Iterator[None]:
    """Let each test begin with a courier that has met no trouble, and a closed connection."""
    publisher = engine_module.Publisher()
    monkeypatch.setattr(engine_module, "_publisher", publisher)
    monkeypatch.setattr(engine_module, "_courier", Courier(publisher.close))
    yield
    publisher.close()


@pytest.fixture
def on_redis(app: Celery) -> Iterator[None]:
    """Let the app use a real broker, which a worker leaves faster than the one in memory."""
    prefix = f"test-{uuid4().hex}-"
    app.conf.task_always_eager = False
    app.conf.broker_url = REDIS_URL
    app.conf.broker_transport_options = {"global_keyprefix": prefix}
    yield
    with redis.Redis.from_url(REDIS_URL) as client:
        for key in client.scan_iter(f"{prefix}*"):
            client.delete(key)


@contextmanager
def working(app: Celery) -> Iterator[None]:
    """A worker of the app's in a thread of this process, which changes the level of the log."""
    root = logging.getLogger()
    level = root.level
    try:
        with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=20):
            yield
    finally:
        root.setLevel(level)


def eventually(condition: Callable[[], Any], timeout: float = 10) -> bool:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def waiting(app: Celery) -> list[dict[str, Any]]:
    """The messages in the app's queue, taken out of it."""
    messages: list[dict[str, Any]] = []
    with app.connection_for_read() as connection:
        queue = connection.SimpleQueue(app.conf.task_default_queue)
        while True:
            try:
                message = queue.get(block=False)
            except queue.Empty:
                queue.close()
                return messages
            message.ack()
            messages.append({"headers": message.headers, "payload": message.payload})


class TestMessages:
    def test_hold_the_primary_key_and_nothing_else(
        self, client: Client, handlers: Any, app: Celery
    ) -> None:
        app.conf.task_always_eager = False
        handlers.add(effect)
        assert deliver(client, "stripe").status_code == 202
        (message,) = waiting(app)
        args, kwargs, _ = message["payload"]
        assert (message["headers"]["task"], args, kwargs) == (RUN, [stored().pk], {})
        assert message["headers"]["ignore_result"] is True
        assert "evt_1" not in json.dumps(message)
        assert Effect.objects.count() == 0

    def test_go_where_the_routes_say(self, client: Client, handlers: Any, app: Celery) -> None:
        app.conf.task_always_eager = False
        other = f"other-{uuid4().hex}"
        app.conf.task_routes = {"django_webhook_idempotency.*": {"queue": other}}
        handlers.add(effect)
        deliver(client, "stripe")
        assert waiting(app) == []
        app.conf.task_default_queue = other
        assert len(waiting(app)) == 1

    def test_none_is_sent_for_what_is_rolled_back(
        self, client: Client, handlers: Any, app: Celery, configure: Any
    ) -> None:
        """WB-040: the message follows the commit."""
        app.conf.task_always_eager = False
        configure(MAX_PENDING=1)
        handlers.add(effect)
        assert deliver(client, "stripe", "evt_1").status_code == 202
        assert deliver(client, "stripe", "evt_2").status_code == 503
        assert [message["payload"][0] for message in waiting(app)] == [[stored().pk]]

    def test_eager_runs_it_here(self, client: Client, handlers: Any) -> None:
        threads = []
        handlers.add(lambda event: threads.append(threading.current_thread()))
        assert deliver(client, "stripe").status_code == 202
        assert threads == [threading.current_thread()]
        assert stored().status == EventStatus.PROCESSED


@pytest.mark.service("redis")
@pytest.mark.usefixtures("on_redis")
class TestRun:
    def test_a_worker_runs_what_was_received(
        self, client: Client, handlers: Any, app: Celery
    ) -> None:
        handlers.add(effect)
        with working(app):
            for number in range(5):
                deliver(client, "stripe", f"evt_{number}")
            assert eventually(lambda: WebhookEvent.objects.filter(status="processed").count() == 5)
        assert Effect.objects.count() == 5

    def test_doubled_and_late_messages_do_no_harm(
        self, client: Client, handlers: Any, app: Celery
    ) -> None:
        """WB-044, and a message whose event was purged long ago."""
        handlers.add(effect)
        ended: list[str] = []
        signals.task_postrun.connect(note := lambda **more: ended.append(more["task_id"]))
        with working(app):
            deliver(client, "stripe")
            assert eventually(lambda: stored().status == EventStatus.PROCESSED)
            before = WebhookEvent.objects.values().get()
            for _ in range(3):
                app.send_task(RUN, args=[stored().pk], ignore_result=True)
            app.send_task(RUN, args=[10**9], ignore_result=True)
            deliver(client, "stripe", "evt_2")
            assert eventually(lambda: len(ended) == 6)
        signals.task_postrun.disconnect(note)
        assert waiting(app) == []
        assert WebhookEvent.objects.filter(status="processed").count() == 2
        assert WebhookEvent.objects.values().get(event_id="evt_1") == before
        assert Effect.objects.count() == 2

    def test_a_message_serves_whoevers_turn_it_is(
        self, client: Client, handlers: Any, app: Celery
    ) -> None:
        """One tenant's flood is in the queue first, and does not run first."""
        order: list[str] = []
        handlers.add(lambda event: order.append(event.scope))
        for number in range(20):
            deliver(client, "stripe", f"evt_{number}", path="/webhooks/stripe/loud/")
        deliver(client, "stripe", "evt_0", path="/webhooks/stripe/quiet/")
        with working(app):
            assert eventually(lambda: len(order) == 21)
        assert "quiet/:" in order[:3]

    def test_the_broker_keeps_the_message_while_the_database_is_away(
        self, client: Client, handlers: Any, app: Celery, monkeypatch: Any, caplog: Any
    ) -> None:
        monkeypatch.setattr("django_webhook_idempotency.tasks.PAUSE", (0.05, 0.1))
        handlers.add(effect)
        name = "NAME" if connection.vendor == "sqlite" else "PORT"
        away = "/nonexistent/database" if name == "NAME" else 1
        with working(app):
            # Only for connections that are opened from now on: the worker opens one for each task.
            connection.ensure_connection()
            with monkeypatch.context() as broken:
                broken.setitem(connections.settings["default"], name, away)
                deliver(client, "stripe")
                assert eventually(lambda: caplog.text.count("given back to the broker") > 2)
                assert stored().status == EventStatus.PENDING
            assert eventually(lambda: stored().status == EventStatus.PROCESSED)
        assert (Effect.objects.count(), stored().attempts) == (1, 1)
        assert "OperationalError" in caplog.text


def test_a_message_outlives_the_process_that_has_it(app: Celery) -> None:
    """And its end is nobody's business: when an event runs again stands in its row."""
    task = app.tasks[RUN]
    assert (task.acks_late, task.reject_on_worker_lost) == (True, True)
    assert (task.ignore_result, task.max_retries) == (True, 0)


class TestPeriodic:
    def test_sweep_sends_what_was_lost(self, client: Client, handlers: Any, app: Celery) -> None:
        handlers.add(effect)
        app.conf.task_always_eager = False
        deliver(client, "stripe")
        assert len(waiting(app)) == 1
        WebhookEvent.objects.update(enqueued_at=None)
        app.tasks[SWEEP]()
        assert [message["payload"][0] for message in waiting(app)] == [[stored().pk]]

    def test_purge_does_what_the_command_does(
        self, client: Client, handlers: Any, app: Celery, configure: Any
    ) -> None:
        handlers.add(effect)
        for number in range(3):
            deliver(client, "stripe", f"evt_{number}")
        old = timezone.now() - timedelta(days=400)
        WebhookEvent.objects.exclude(event_id="evt_2").update(received_at=old)
        WebhookDelivery.objects.update(received_at=old)
        app.tasks[PURGE]()
        assert [event.event_id for event in WebhookEvent.objects.all()] == ["evt_2"]
        assert WebhookDelivery.objects.count() == 0

    def test_purge_is_bounded(
        self, client: Client, handlers: Any, app: Celery, caplog: Any
    ) -> None:
        handlers.add(effect)
        deliver(client, "stripe")
        WebhookEvent.objects.update(received_at=timezone.now() - timedelta(days=400))
        app.tasks[PURGE](max_seconds=0)
        assert WebhookEvent.objects.count() == 1
        assert "out of time" in caplog.text

    def test_purge_deletes_no_key_inside_the_window(
        self, client: Client, handlers: Any, app: Celery, configure: Any, caplog: Any
    ) -> None:
        handlers.add(effect)
        deliver(client, "stripe")
        deliver(client, "github")
        WebhookEvent.objects.update(received_at=timezone.now() - timedelta(days=2))
        configure(RETENTION=timedelta(days=1))
        app.tasks[PURGE]()
        assert WebhookEvent.objects.count() == 2
        assert "leaves stripe alone" in caplog.text


class Silent:
    """A listener that accepts connections and never says a word."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listening.getsockname()[1]
        self.accepted: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        try:
            while True:
                self.accepted.append(self.listening.accept()[0])
        except OSError:
            return

    def close(self) -> None:
        # shutdown() wakes the thread that is in accept().
        self.listening.shutdown(socket.SHUT_RDWR)
        for each in [*self.accepted, self.listening]:
            each.close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    silent = Silent()
    yield silent
    silent.close()


TIMEOUT = 0.3


class TestTrouble:
    """WB-011, WB-020, WB-042: the acknowledgement is bounded, and the row waits for the sweeper."""

    @pytest.mark.parametrize("scheme", ["amqp", "redis"])
    def test_a_broker_that_says_nothing_costs_one_wait(
        self,
        client: Client,
        handlers: Any,
        app: Celery,
        configure: Any,
        silent: Silent,
        scheme: str,
        caplog: Any,
    ) -> None:
        configure(ENQUEUE_TIMEOUT=TIMEOUT)
        app.conf.task_always_eager = False
        app.conf.broker_url = f"{scheme}://someone:broker-password@127.0.0.1:{silent.port}/0"
        handlers.add(effect)
        seconds = []
        for number in range(10):
            started = time.monotonic()
            assert deliver(client, "stripe", f"evt_{number}").status_code == 202
            seconds.append(time.monotonic() - started)
        assert TIMEOUT <= seconds[0] < TIMEOUT + 0.7
        assert max(seconds[1:]) < TIMEOUT
        assert len(silent.accepted) == 1
        assert WebhookEvent.objects.filter(status="pending").count() == 10
        assert caplog.text.count("the sweeper will") == 10
        assert "broker-password" not in caplog.text
        # The courier itself comes back too, and could look for the broker again.
        assert eventually(lambda: engine_module._courier._open == 0)

    @pytest.mark.parametrize("scheme", ["amqp", "redis"])
    def test_a_broker_that_refuses_costs_one_wait_at_the_most(
        self, client: Client, handlers: Any, app: Celery, configure: Any, scheme: str
    ) -> None:
        configure(ENQUEUE_TIMEOUT=TIMEOUT)
        app.conf.task_always_eager = False
        app.conf.broker_url = f"{scheme}://127.0.0.1:1/0"
        handlers.add(effect)
        started = time.monotonic()
        for number in range(5):
            assert deliver(client, "stripe", f"evt_{number}").status_code == 202
        assert time.monotonic() - started < 2 * TIMEOUT
        assert eventually(lambda: engine_module._courier._open == 0)

    @pytest.mark.parametrize(
        "url",
        [
            pytest.param(AMQP_URL, marks=pytest.mark.service("rabbitmq"), id="amqp"),
            pytest.param(REDIS_URL, marks=pytest.mark.service("redis"), id="redis"),
        ],
    )
    def test_a_connection_that_the_broker_has_closed_is_opened_again(
        self, client: Client, handlers: Any, app: Celery, url: str
    ) -> None:
        """No message is lost to a connection that was idle for too long."""
        app.conf.task_always_eager = False
        app.conf.broker_url = url
        handlers.add(effect)
        engine = queue_engine()
        engine.enqueue(1)
        connection_of(engine_module._publisher).shutdown(socket.SHUT_RDWR)
        engine.enqueue(2)
        assert [message["payload"][0] for message in waiting(app)] == [[1], [2]]
        with app.connection_for_write() as broker:
            broker.default_channel.queue_delete(app.conf.task_default_queue)

    def test_while_it_is_down_the_sweeper_gives_up_at_once(
        self, client: Client, handlers: Any, app: Celery, configure: Any, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(courier_module, "PAUSE", 30)
        app.conf.task_always_eager = False
        app.conf.broker_url = "redis://127.0.0.1:1/0"
        handlers.add(effect)
        for number in range(3):
            deliver(client, "stripe", f"evt_{number}")
        WebhookEvent.objects.update(enqueued_at=None)
        app.tasks[SWEEP]()
        assert WebhookEvent.objects.filter(enqueued_at__isnull=True).count() == 3
        with pytest.raises(NotCarried):
            queue_engine().enqueue(1)


def connection_of(publisher: Any) -> Any:
    """The socket of a publisher's connection to its broker."""
    channel = publisher._connection.default_channel
    if hasattr(channel, "client"):
        (redis_connection,) = channel.client.connection_pool._available_connections
        return redis_connection._sock
    return channel.connection.transport.sock


class TestApp:
    def test_is_the_projects_in_every_thread(self, app: Celery) -> None:
        """Celery's own current app is one of each thread."""
        forget_choices()
        found = []
        thread = threading.Thread(target=lambda: found.append(celery_app()))
        thread.start()
        thread.join()
        assert found == [app]

    def test_none(self, app: Celery) -> None:
        forget_choices()
        app.close()
        assert [message.id for message in queue_engine().check()] == ["webhooks.E032"]

    def test_several(self, app: Celery) -> None:
        Celery("other", set_as_current=False)
        other = Celery("another", set_as_current=False)
        assert celery_app() is app
        forget_choices()
        (message,) = queue_engine().check()
        assert message.id == "webhooks.E032"
        assert "set_default()" in (message.hint or "")
        other.set_default()
        assert celery_app() is other


def test_without_the_extra_one_sentence_names_it() -> None:
    """In a process of its own, where Celery cannot be imported: the app still can."""
    program = """
import sys
sys.modules["celery"] = None
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "celery" else find_spec(name, *more)
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django_webhook_idempotency"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    WEBHOOK_IDEMPOTENCY={"QUEUE": "celery", "PROVIDERS": {}},
    ROOT_URLCONF="django_webhook_idempotency.urls",
)
django.setup()
import django_webhook_idempotency.tasks
from django_webhook_idempotency.dispatch.engines import queue_engine
from django_webhook_idempotency.exceptions import MissingExtra
from django_webhook_idempotency.schedule import beat_schedule
print(*[(message.id, message.msg) for message in queue_engine().check()])
for call in (lambda: queue_engine().enqueue(1), beat_schedule):
    try:
        call()
    except MissingExtra as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr == ""
    checked, enqueued, scheduled = done.stdout.splitlines()
    assert "webhooks.E031" in checked
    for line in (checked, enqueued, scheduled):
        assert "pip install 'django-webhook-idempotency[celery]'" in line
