"""Celery Beat as a process, with its schedule in the database: what `schedule_webhooks` is for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command

from django_webhook_idempotency.models import WebhookEvent
from django_webhook_idempotency.names import SWEEP

from .brokers import RabbitBroker
from .cluster import Cluster, celery_cluster
from .conftest import FULL
from .ledger_state import assert_quiet
from .provider import events
from .queue_state import accept, assert_once, frozen, runs

HAS_BEAT = apps.is_installed("django_celery_beat")
beat_models: Any = import_module("django_celery_beat.models") if HAS_BEAT else None

pytestmark = [
    # What sweeps is the same on MariaDB; its rows are django-celery-beat's.
    pytest.mark.only_on("postgresql", *(["mysql"] if FULL else [])),
    pytest.mark.django_db(transaction=True),
    pytest.mark.service("rabbitmq"),
    pytest.mark.skipif(not HAS_BEAT, reason="django-celery-beat is not installed"),
]


@pytest.fixture
def cluster(tmp_path: Path, database_url: str) -> Iterator[Cluster]:
    """Two Beats that read the database, with a sweep each second as an operator would set it."""
    call_command("schedule_webhooks", verbosity=0)
    each_second = beat_models.IntervalSchedule.objects.create(every=1, period="seconds")
    change_sweep(interval=each_second, expire_seconds=1)
    broker = RabbitBroker(direct=True)
    scheduler = "django_celery_beat.schedulers:DatabaseScheduler"
    try:
        with celery_cluster(tmp_path, broker, [1, 1], scheduler=scheduler) as cluster:
            yield cluster
    finally:
        broker.close()


def change_sweep(**changes: Any) -> None:
    row = beat_models.PeriodicTask.objects.get(task=SWEEP)
    for name, value in changes.items():
        setattr(row, name, value)
    row.save()


def sent(cluster: Cluster) -> list[int]:
    """How many sweeps each Beat has sent."""
    return [beat.log.count("Sending due task") for beat in cluster.beats]


def wait_for_sweeps(cluster: Cluster) -> None:
    """Wait until each of the two has sent another."""
    before, deadline = sent(cluster), time.monotonic() + 30
    while not all(now > then for now, then in zip(sent(cluster), before, strict=True)):
        assert time.monotonic() < deadline, cluster.logs()
        time.sleep(0.1)


def test_two_beats_sweep_what_the_broker_forgot(cluster: Cluster) -> None:
    """Both send the task at the same time, and each event still runs once."""
    wait_for_sweeps(cluster)
    lost = events(40)
    with frozen(cluster):
        accept(cluster, lost)
        assert cluster.broker.waiting() >= 30
        cluster.broker.empty()
    cluster.drain(len(lost))
    assert_once(cluster, lost)
    assert runs(cluster, lost) == len(lost)
    assert WebhookEvent.objects.count() == len(lost)
    assert_quiet(cluster.server)
    assert "Traceback" not in cluster.logs()


def test_an_operator_stops_the_sweep_in_the_admin(cluster: Cluster) -> None:
    """Both Beats see it, and `schedule_webhooks` does not start it again."""
    wait_for_sweeps(cluster)
    change_sweep(enabled=False)
    call_command("schedule_webhooks", verbosity=0)
    deadline = time.monotonic() + 30
    while True:
        before = sent(cluster)
        time.sleep(3)
        if sent(cluster) == before:
            break
        assert time.monotonic() < deadline, cluster.logs()
    change_sweep(enabled=True)
    wait_for_sweeps(cluster)
