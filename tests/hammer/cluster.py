"""A whole set-up for one broker: a server that receives, Celery workers, and two Beats."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from django.conf import settings
from django.db import connection

from django_webhook_idempotency.models import WebhookEvent

from .journal import Journal
from .server import ROOT, Server, serve

START_TIMEOUT = 60  # seconds
#: Seconds that a lease lasts, between two sweeps, and after which a message counts as lost.
LEASE, SWEEP_EVERY, MESSAGE_TIME = 1.5, 1, 2


def url_of_this_run() -> str:
    """The URL of this run's test database."""
    name = str(connection.settings_dict["NAME"])
    return urlunsplit(urlsplit(settings.DATABASE_URL)._replace(path=f"/{quote(name)}"))


@dataclass
class Process:
    """A process group of the cluster, and its log."""

    log_file: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def signal(self, number: int) -> None:
        """Send a signal to the process and all of its children."""
        os.killpg(self.process.pid, number)

    def wait_for_line(self, text: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while text not in self.log:
            assert self.process.poll() is None, f"It ended:\n{self.log}"
            assert time.monotonic() < deadline, f"No {text!r} in:\n{self.log}"
            time.sleep(0.05)

    def end(self) -> None:
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.wait()


@dataclass
class Cluster:
    """What runs, and what its handlers wrote down."""

    server: Server
    broker: Any
    environment: dict[str, str] = field(repr=False)
    workers: list[Process] = field(default_factory=list)
    beats: list[Process] = field(default_factory=list)

    @property
    def journal(self) -> Journal:
        return self.server.journal

    def logs(self) -> str:
        return "\n".join(each.log[-3000:] for each in [*self.workers, *self.beats])

    def drain(self, count: int, timeout: float = 60) -> float:
        """Wait until so many events are finished; the seconds that it took."""
        started = time.monotonic()
        while WebhookEvent.objects.finished().count() < count:
            if time.monotonic() - started > timeout:
                left = list(WebhookEvent.objects.unfinished().values()[:5])
                raise AssertionError(f"Not finished: {left}\n{self.logs()}")
            time.sleep(0.05)
        return time.monotonic() - started


def environment_of(directory: Path, changes: dict[str, Any]) -> dict[str, str]:
    return {
        **os.environ,
        "DATABASE_URL": url_of_this_run(),
        "DJANGO_SETTINGS_MODULE": "tests.hammer.settings",
        "HAMMER_DIRECTORY": str(directory),
        "HAMMER_SETTINGS": json.dumps(changes),
        "PYTHONPATH": str(ROOT),
    }


@contextmanager
def running(
    log_file: Path, environment: dict[str, str], module: str, *arguments: str
) -> Iterator[Process]:
    with open(log_file, "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    started = Process(log_file, process)
    try:
        yield started
    finally:
        started.end()


def celery_changes(broker: Any, **webhook: Any) -> dict[str, Any]:
    """What differs in the settings of everybody in a cluster."""
    return {
        "DATABASE": {"CONN_MAX_AGE": 60},
        "WEBHOOK_IDEMPOTENCY": {
            "PROCESSING": "queued",
            "QUEUE": "celery",
            "LEASE": LEASE,
            "BACKOFF": 0.5,
            # A killer may meet one event again and again; it is to be a dead letter only elsewhere.
            "MAX_ATTEMPTS": 1000,
            **webhook,
        },
        "DJANGO": {
            "HAMMER_SWEEP_EVERY": SWEEP_EVERY,
            "HAMMER_MESSAGE_TIME": MESSAGE_TIME,
            "CELERY_BROKER_URL": broker.url,
            "CELERY_BROKER_TRANSPORT_OPTIONS": broker.options,
            "CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP": True,
            "CELERY_TASK_DEFAULT_QUEUE": broker.queue,
            "CELERY_WORKER_PREFETCH_MULTIPLIER": 1,
        },
    }


@contextmanager
def celery(
    directory: Path, name: str, environment: dict[str, str], *arguments: str
) -> Iterator[Process]:
    app = ["-A", "tests.hammer.celery_app"]
    with running(
        directory / name, environment, "celery", *app, *arguments, "-l", "INFO"
    ) as process:
        yield process


def _worker_arguments(workers: Sequence[int]) -> Iterator[list[str]]:
    for number, processes in enumerate(workers):
        yield ["-c", str(processes), "-n", f"w{number}@%h", "--without-gossip", "--without-mingle"]


def _beat_arguments(directory: Path, number: int, scheduler: str) -> list[str]:
    where = f"--scheduler={scheduler}" if scheduler else f"--schedule={directory / f's{number}'}"
    return ["--pidfile=", where]


@contextmanager
def celery_cluster(
    directory: Path, broker: Any, workers: Sequence[int], *, scheduler: str = ""
) -> Iterator[Cluster]:
    """A server, a worker node for each number of processes, and two Beats.

    The Beats know the schedule from the settings, or from the database with the `scheduler` of
    django-celery-beat.
    """
    changes = celery_changes(broker)
    if scheduler:
        changes["APPS"] = ["django_celery_beat"]
    environment = environment_of(directory, changes)
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(celery(directory, f"worker-{number}", environment, "worker", *more))
            for number, more in enumerate(_worker_arguments(workers))
        ]
        beats = [
            stack.enter_context(
                celery(
                    directory,
                    f"beat-{number}",
                    environment,
                    "beat",
                    *_beat_arguments(directory, number, scheduler),
                )
            )
            for number in range(2)
        ]
        server = stack.enter_context(
            serve(
                directory,
                directory / "server",
                environment["DATABASE_URL"],
                workers=2,
                settings=changes,
            )
        )
        for node in nodes:
            node.wait_for_line("ready.")
        yield Cluster(server, broker, environment, nodes, beats)


@contextmanager
def tasks_cluster(directory: Path, workers: int) -> Iterator[Cluster]:
    """A server and so many `db_worker` processes of Django's tasks in the database."""
    apps = ["django_tasks_db"] + ([] if find_spec("django.tasks") else ["django_tasks"])
    command = ["db_worker", "--no-startup-delay", "--interval=0.1"]
    with _django_cluster(directory, workers, command, "tasks", apps) as cluster:
        yield cluster


@contextmanager
def database_cluster(directory: Path, workers: int) -> Iterator[Cluster]:
    """A server and so many `webhook_worker` processes with one thread each."""
    command = ["webhook_worker", "--concurrency", "1"]
    with _django_cluster(directory, workers, command, "database", []) as cluster:
        yield cluster


@contextmanager
def _django_cluster(
    directory: Path, workers: int, command: list[str], queue: str, apps: list[str]
) -> Iterator[Cluster]:
    changes = {
        "DATABASE": {"CONN_MAX_AGE": 60},
        "WEBHOOK_IDEMPOTENCY": {
            "PROCESSING": "queued",
            "QUEUE": queue,
            "LEASE": LEASE,
            "BACKOFF": 0.5,
        },
        "APPS": apps,
    }
    environment = environment_of(directory, changes)
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(
                running(directory / f"worker-{number}", environment, "django", *command)
            )
            for number in range(workers)
        ]
        server = stack.enter_context(
            serve(
                directory,
                directory / "server",
                environment["DATABASE_URL"],
                workers=2,
                settings=changes,
            )
        )
        yield Cluster(server, None, environment, nodes)
