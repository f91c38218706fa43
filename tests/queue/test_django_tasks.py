"""Django's tasks, or their backport, as the queue."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any, ClassVar

import pytest
from django.test import Client
from django.utils import timezone
from django_tasks_db.compat import BaseTaskBackend, task_backends
from django_tasks_db.models import DBTaskResult

from django_webhook_idempotency.dispatch.engines import queue_engine
from django_webhook_idempotency.dispatch.engines import tasks as engine_module
from django_webhook_idempotency.dispatch.engines.courier import Courier
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.models import WebhookEvent
from tests.app.models import Effect
from tests.deliveries import deliver

from .test_runs import Faulty, effect, stored

pytestmark = pytest.mark.django_db(transaction=True)

BUILT_IN = f"{BaseTaskBackend.__module__.rpartition('.')[0]}"


@pytest.fixture(autouse=True)
def tasks_queue(configure: Callable[..., None]) -> None:
    configure(QUEUE="tasks")
    # The task keeps the backend that was set when its module was imported: not that of one test.
    import_module("django_webhook_idempotency.dispatch.engines.run_task")


def use(settings: Any, backend: str, **more: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": backend, **more}}


def work_off() -> int:
    """Run the tasks in the database that are ready, as `db_worker --batch` does."""
    done = 0
    while (result := DBTaskResult.objects.ready().first()) is not None:
        result.claim("worker")
        result.task.call(*result.args_kwargs["args"], **result.args_kwargs["kwargs"])
        DBTaskResult.objects.filter(pk=result.pk).update(status="SUCCESSFUL")
        done += 1
    return done


class Remote(BaseTaskBackend):
    """A backend of somebody else's, behind a broker that can hang."""

    threads: ClassVar[list[str]] = []
    answers: ClassVar[threading.Event] = threading.Event()

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        self.threads.append(threading.current_thread().name)
        self.answers.wait(30)


class TestDatabaseBackend:
    def test_the_message_is_the_primary_key(self, client: Client, handlers: Any) -> None:
        handlers.add(effect)
        assert deliver(client, "stripe").status_code == 202
        message = DBTaskResult.objects.get()
        assert message.args_kwargs == {"args": [stored().pk], "kwargs": {}}
        assert (message.queue_name, message.backend_name) == ("default", "default")
        assert Effect.objects.count() == 0
        assert work_off() == 1
        assert stored().status == EventStatus.PROCESSED
        assert Effect.objects.count() == 1

    def test_none_for_what_is_rolled_back(
        self, client: Client, handlers: Any, configure: Any
    ) -> None:
        configure(MAX_PENDING=1)
        handlers.add(effect)
        statuses = [deliver(client, "stripe", f"evt_{number}").status_code for number in range(2)]
        assert statuses == [202, 503]
        assert DBTaskResult.objects.count() == 1

    def test_doubled_late_and_orphaned_messages_do_no_harm(
        self, client: Client, handlers: Any
    ) -> None:
        handlers.add(effect)
        deliver(client, "stripe")
        engine = queue_engine()
        engine.enqueue(stored().pk)
        engine.enqueue(10**9)
        assert work_off() == 3
        assert Effect.objects.count() == 1

    def test_a_retry_is_enqueued_for_its_time(
        self, client: Client, handlers: Any, configure: Any
    ) -> None:
        configure(BACKOFF=timedelta(hours=1))
        handlers.add(Faulty(ValueError()))
        deliver(client, "stripe")
        assert work_off() == 1
        again = DBTaskResult.objects.get(status="READY")
        assert again.run_after == stored().next_attempt_at
        assert again.run_after > timezone.now()
        assert work_off() == 0
        past = timezone.now() - timedelta(seconds=1)
        WebhookEvent.objects.update(next_attempt_at=past)
        DBTaskResult.objects.filter(pk=again.pk).update(run_after=past)
        assert work_off() == 1
        assert stored().status == EventStatus.PROCESSED

    def test_another_backend_and_queue(
        self, client: Client, handlers: Any, settings: Any, configure: Any
    ) -> None:
        settings.TASKS = {
            "default": {"BACKEND": f"{BUILT_IN}.dummy.DummyBackend"},
            "slow": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": ["webhooks"]},
        }
        configure(TASKS_BACKEND="slow", TASKS_QUEUE="webhooks")
        handlers.add(effect)
        deliver(client, "stripe")
        message = DBTaskResult.objects.get()
        assert (message.queue_name, message.backend_name) == ("webhooks", "slow")
        assert queue_engine().check() == []


class TestOtherBackends:
    def test_immediate_runs_it_here(self, client: Client, handlers: Any, settings: Any) -> None:
        use(settings, f"{BUILT_IN}.immediate.ImmediateBackend")
        threads = []
        handlers.add(lambda event: threads.append(threading.current_thread()))
        assert deliver(client, "stripe").status_code == 202
        assert threads == [threading.current_thread()]
        assert stored().status == EventStatus.PROCESSED

    def test_dummy_keeps_it(self, client: Client, handlers: Any, settings: Any) -> None:
        use(settings, f"{BUILT_IN}.dummy.DummyBackend")
        handlers.add(effect)
        deliver(client, "stripe")
        backend: Any = task_backends["default"]
        (result,) = backend.results
        assert result.args == [stored().pk]

    def test_one_behind_a_broker_is_bounded(
        self, client: Client, handlers: Any, settings: Any, configure: Any, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(engine_module, "_courier", Courier())
        use(settings, f"{__name__}.Remote")
        configure(ENQUEUE_TIMEOUT=0.3)
        handlers.add(effect)
        Remote.threads.clear()
        Remote.answers.set()
        deliver(client, "stripe", "evt_0")
        assert Remote.threads == ["webhook-courier"]
        Remote.answers.clear()
        seconds = []
        for number in range(1, 5):
            started = time.monotonic()
            assert deliver(client, "stripe", f"evt_{number}").status_code == 202
            seconds.append(time.monotonic() - started)
        Remote.answers.set()
        assert 0.3 <= seconds[0] < 1
        assert max(seconds[1:]) < 0.3
        assert WebhookEvent.objects.filter(status="pending").count() == 5


def test_without_the_extra_one_sentence_names_it() -> None:
    """In a process of its own, where neither Django nor the backport has tasks."""
    program = """
import sys
sys.modules["django.tasks"] = sys.modules["django_tasks"] = None
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django_webhook_idempotency"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    WEBHOOK_IDEMPOTENCY={"QUEUE": "tasks", "PROVIDERS": {}},
    ROOT_URLCONF="django_webhook_idempotency.urls",
)
django.setup()
from django_webhook_idempotency.dispatch.engines import queue_engine
from django_webhook_idempotency.exceptions import MissingExtra
print(*[(message.id, message.msg) for message in queue_engine().check()])
try:
    queue_engine().enqueue(1)
except MissingExtra as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr == ""
    checked, enqueued = done.stdout.splitlines()
    assert "webhooks.E034" in checked
    for line in (checked, enqueued):
        assert "pip install 'django-webhook-idempotency[tasks]'" in line
