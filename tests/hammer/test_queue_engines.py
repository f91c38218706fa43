"""Each queue engine under load: two workers drain while events come in, and nothing is lost."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from django_webhook_idempotency.models import WebhookEvent

from .brokers import RabbitBroker, RedisBroker
from .cluster import LEASE, Cluster, celery_changes, celery_cluster, database_cluster, tasks_cluster
from .conftest import Start, only_when_full
from .latency import handler_times, milliseconds
from .ledger_state import assert_quiet
from .provider import Event, events, fresh, post
from .queue_state import accept, assert_once, runs, waits
from .server import ROOT

pytestmark = [
    pytest.mark.only_on("postgresql", "mysql"),
    pytest.mark.django_db(transaction=True),
]


@contextmanager
def engine(name: str, directory: Path) -> Iterator[Cluster]:
    """A server and two workers of an engine."""
    if name in ("tasks", "database"):
        make = tasks_cluster if name == "tasks" else database_cluster
        with make(directory, workers=2) as cluster:
            yield cluster
        return
    broker: Any = RedisBroker(directory) if name == "redis" else RabbitBroker(direct=True)
    with ExitStack() as stack:
        stack.callback(broker.close)
        yield stack.enter_context(celery_cluster(directory, broker, workers=[1, 1]))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("rabbitmq", marks=[pytest.mark.service("rabbitmq"), only_when_full]),
        pytest.param("redis", marks=[pytest.mark.service("redis-server"), only_when_full]),
        pytest.param("database", marks=only_when_full),
        "tasks",
    ],
)
def test_two_workers_drain_while_events_come_in(
    name: str,
    tmp_path: Path,
    database_url: str,
    size: Callable[[int, int], int],
    figures: Callable[..., None],
) -> None:
    with engine(name, tmp_path) as cluster:
        sent = events(size(20_000, 150))
        started = time.monotonic()
        campaign = accept(cluster, sent, connections=8)
        accepted = time.monotonic() - started
        cluster.drain(len(sent), timeout=60 + len(sent) / 5)
        drained = time.monotonic() - started
        handlers = handler_times(cluster.journal, {event.id for event in sent})
        figures(
            engine=name,
            events=len(sent),
            accepted_per_second=round(len(sent) / accepted, 1),
            drained_per_second=round(len(sent) / drained, 1),
            receipt=milliseconds(campaign.all_seconds),
            to_the_end=milliseconds(waits()),
            handler=milliseconds(handlers),
        )
        assert_once(cluster, sent)
        assert runs(cluster, sent) == len(sent)
        assert_quiet(cluster.server)


@pytest.mark.only_on("postgresql")
def test_a_killed_worker_of_djangos_tasks_loses_nothing(tmp_path: Path, database_url: str) -> None:
    """Its backend gives no message back, so somebody has to look: `webhook_worker --once`."""
    with tasks_cluster(tmp_path, workers=2) as cluster:
        sent = [*events(20), Event("stripe", fresh("killed"), plan={"after": 30_000})]
        accept(cluster, sent)
        inside = cluster.server.wait_for("wrote", sent[-1].id).pid
        (worker,) = [each for each in cluster.workers if each.process.pid == inside]
        worker.signal(signal.SIGKILL)
        cluster.drain(len(sent) - 1)
        time.sleep(LEASE)
        WebhookEvent.objects.filter(event_id=sent[-1].id).update(body=quick(sent[-1]))
        command = [sys.executable, "-m", "django", "webhook_worker", "--once"]
        subprocess.run(command, cwd=ROOT, env=cluster.environment, check=True, timeout=60)
        assert_once(cluster, sent)
        assert runs(cluster, sent) == len(sent) + 1


def quick(event: Event) -> bytes:
    """The event's body, with a plan that does not linger."""
    return Event(event.provider, event.id, event.type).body


@pytest.mark.parametrize("scheme", ["amqp", pytest.param("redis", marks=only_when_full)])
@pytest.mark.only_on("postgresql")
def test_a_broker_that_says_nothing_slows_no_acknowledgement(
    start: Start, scheme: str, figures: Callable[..., None]
) -> None:
    """Each process of the server waits once, and no longer than ENQUEUE_TIMEOUT."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as silent:
        broker: Any = RabbitBroker(direct=True)
        broker.url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/0"
        changes = celery_changes(broker, ENQUEUE_TIMEOUT=0.5)
        server = start(2, django=changes["DJANGO"], **changes["WEBHOOK_IDEMPOTENCY"])
        answers = [post(server.port, event) for event in events(40)]
    seconds = sorted((answer.seconds for answer in answers), reverse=True)
    figures(scheme=scheme, receipt=milliseconds(seconds))
    assert {answer.status for answer in answers} <= {200, 202}
    assert seconds[0] < 1.5
    assert [each for each in seconds[2:] if each > 0.5] == []
    assert WebhookEvent.objects.filter(status="pending").count() == 40
    assert_quiet(server)
