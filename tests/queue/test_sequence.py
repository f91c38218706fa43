"""Several worker processes, failures and kills at random: each key stays in order and alone."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.models import HandlerTurn, OrderingKey, WebhookEvent
from tests.app.models import Effect
from tests.deliveries import deliver
from tests.hammer.journal import Journal
from tests.hammer.sqlite import SQLITE, leave_wal
from tests.queue.ordered_worker import register

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

FULL = os.environ.get("WEBHOOK_HAMMER", "") == "full"
EVENTS, KEYS, KILLS = (1000, 40, 60) if FULL else (48, 6, 3)
LEASE = 2.0  # seconds
PATIENCE = 600 if FULL else 120  # seconds


@pytest.fixture
def start(tmp_path: Path, database_url: str) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Give a function that starts a worker on this run's database."""
    webhook = {"LEASE": LEASE, "BACKOFF": 0.05, "BACKOFF_MAX": 0.2, "PROCESSING": "queued"}
    changes: dict[str, Any] = {"WEBHOOK_IDEMPOTENCY": webhook}
    if connection.vendor == "sqlite":
        changes["DATABASE"] = {"OPTIONS": SQLITE}
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "tests.hammer.settings",
        "HAMMER_SETTINGS": json.dumps(changes),
        "HAMMER_DIRECTORY": str(tmp_path),
    }
    started: list[subprocess.Popen[bytes]] = []

    def one() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.queue.ordered_worker", str(tmp_path)]
        with (tmp_path / "log").open("ab") as log:
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        return started[-1]

    yield one
    (tmp_path / "stop").touch()
    for process in started:
        try:
            process.wait(20)
        finally:
            process.kill()
            process.wait()
    if connection.vendor == "sqlite":
        leave_wal()


def send(client: Client) -> dict[int, dict[str, Any]]:
    """Deliver the events of all keys, some of them older than what came before; by number."""
    sent = {}
    for number in range(EVENTS):
        key = number % KEYS
        data = {"object": key, "v": max(number + random.choice([0, 0, 0, -KEYS * 3]), 0)}
        if random.random() < 0.05:
            data["reject"] = 1
        deliver(client, "stripe", f"e{number}", "ordered", **data)
        sent[WebhookEvent.objects.get(event_id=f"e{number}").pk] = data
    return sent


def wait_for_the_end(started: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while WebhookEvent.objects.filter(lane__isnull=False).exists():
        left = list(
            WebhookEvent.objects.filter(lane__isnull=False).values_list(
                "pk", "status", "attempts", "next_attempt_at", "last_error"
            )
        )
        assert time.monotonic() < deadline, (timezone.now(), left)
        started()
        time.sleep(0.05)


def applied(journal: Journal, killed: set[int]) -> tuple[dict[str, list[int]], int]:
    """What each key saw, by order of its end, and how often two keys were busy at once.

    Fails if two events were in one key at the same time, but for what a kill left there.
    """
    inside: dict[str, tuple[int, str]] = {}
    done: dict[str, list[int]] = defaultdict(list)
    together = 0
    for line in journal.lines():
        pk, *how = line.note.split()
        if line.word == "enter":
            if line.event in inside:
                assert inside[line.event][0] in killed, f"two at once in {line.event}"
            inside[line.event] = (line.pid, pk)
            busy = {pid for pid, _ in inside.values()} - killed
            together += len(busy) > 1
        else:
            assert inside.pop(line.event) == (line.pid, pk)
            if how == ["done"] and (not done[line.event] or done[line.event][-1] != int(pk)):
                done[line.event].append(int(pk))
    return done, together


@pytest.mark.parametrize("kills", [0, KILLS] if FULL else [KILLS])
def test_each_key_stays_in_order_and_alone(
    client: Client, configure: Any, start: Any, tmp_path: Path, kills: int, handlers: Any
) -> None:
    from django_webhook_idempotency.handlers import registry

    workers = [start() for _ in range(3)]
    before = dict(registry._handlers)
    register(tmp_path)
    try:
        sent = send(client)
    finally:
        registry._handlers = before
    journal = Journal(tmp_path / "journal")
    killed: set[int] = set()

    def keep_going() -> None:
        """Kill a worker inside of a handler, and start another."""
        inside = [worker for worker in workers if worker.pid in journal.running()]
        if len(killed) < kills and inside:
            victim = random.choice(inside)
            victim.kill()
            victim.wait()
            killed.add(victim.pid)
            workers.remove(victim)
            workers.append(start())

    wait_for_the_end(keep_going)
    assert len(killed) == kills
    done, together = applied(journal, killed)
    assert together > 0
    for kind in ("atomic", "leased"):
        for key in range(KEYS):
            check_key(sent, done[f"{kind}-{key}"], key)
    assert not HandlerTurn.objects.exists()
    assert not OrderingKey.objects.filter(holder__isnull=False).exists()
    # What an atomic handler wrote is there once for each event that it applied.
    effects = Effect.objects.filter(name__startswith="atomic").values_list("event_id", flat=True)
    expected = [pk for name, pks in done.items() if name.startswith("atomic") for pk in pks]
    assert sorted(map(int, effects)) == sorted(expected)


def check_key(sent: dict[int, dict[str, Any]], done: list[int], key: int) -> None:
    """What was applied to a key is what its events in their order leave standing."""
    newest, expected = -1, []
    for pk, data in sorted(sent.items()):
        if data["object"] != key or data["v"] < newest:
            continue
        if "reject" not in data:
            newest = data["v"]
            expected.append(pk)
    assert done == expected


def test_a_long_chain_drains(client: Client, handlers: Any, drain: Callable[[], int]) -> None:
    """Each event is looked at once, however many wait behind it."""
    seen: list[int] = []
    handlers.add(lambda event: seen.append(event.pk), ordering_key="object")
    number = 1000 if FULL else 60
    for each in range(number):
        deliver(client, "stripe", f"e{each}", object=1)
    assert drain() == number
    assert seen == sorted(seen)
    assert WebhookEvent.objects.filter(status=EventStatus.PROCESSED).count() == number
