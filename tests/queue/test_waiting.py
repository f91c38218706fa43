"""Nobody waits for a handler: no acknowledgement, and no worker that calls the next event."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import Client

from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import run_claim
from django_webhook_idempotency.dispatch.serving import serve
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.models import WebhookEvent
from tests.app.models import Effect
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)

#: How long somebody is at work with a row, and how long others may take meanwhile, in seconds.
BUSY, ALLOWED = 4.0, 2.0


def effect(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id)


@contextmanager
def somebody_at_work_with(event_id: str, seconds: float = BUSY) -> Iterator[None]:
    """Lock an event's row as a request does that runs its handlers."""
    locked, over = threading.Event(), threading.Event()

    def work() -> None:
        with transaction.atomic():
            assert WebhookEvent.objects.lock(WebhookEvent.objects.get(event_id=event_id).pk)
            locked.set()
            over.wait(seconds)
        connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert locked.wait(5)
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def seconds() -> Callable[[Callable[[], Any]], float]:
    """Give a function that says how long another takes."""

    def measure(function: Callable[[], Any]) -> float:
        started = time.monotonic()
        function()
        return time.monotonic() - started

    return measure


def test_a_redelivery_waits_for_no_handler_of_a_request(
    client: Client, handlers: Any, drain: Callable[[], int], seconds: Any
) -> None:
    """Two views of a provider, or two releases of a project, may differ in PROCESSING."""
    handlers.add(lambda event: 1 / 0)
    deliver(client, "stripe", "evt_1")
    drain()
    answers: list[int] = []
    with somebody_at_work_with("evt_1"):
        took = seconds(lambda: answers.append(deliver(client, "stripe", "evt_1").status_code))
    assert took < ALLOWED
    assert answers == [503]
    assert WebhookEvent.objects.get().status == EventStatus.FAILED
    assert deliver(client, "stripe", "evt_1").status_code == 202


@pytest.mark.only_on("postgresql", "mysql")  # on SQLite the run itself would wait
def test_a_worker_waits_for_nobody_when_it_calls_the_next_event(
    client: Client, handlers: Any, seconds: Any
) -> None:
    handlers.add(effect, ordering_key="object")
    for event_id in ("evt_1", "evt_2"):
        deliver(client, "stripe", event_id, object="one")
    claim = Rotation().claim()
    assert claim is not None
    with somebody_at_work_with("evt_2"):
        assert seconds(lambda: run_claim(claim)) < ALLOWED
    assert WebhookEvent.objects.get(event_id="evt_1").status == EventStatus.PROCESSED


@pytest.mark.only_on("postgresql", "mysql")
def test_a_message_waits_a_moment_for_its_event_to_be_free(client: Client, handlers: Any) -> None:
    """Where nothing sweeps, no other message would come for it."""
    handlers.add(effect)
    deliver(client, "stripe", "evt_1")
    event = WebhookEvent.objects.get()
    with somebody_at_work_with("evt_1", seconds=0.7):
        served = serve(event.pk)
    assert served is not None and served.pk == event.pk
    assert WebhookEvent.objects.get().status == EventStatus.PROCESSED
