"""Whose turn it is where there are many sources, and what it costs to find out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.dispatch import lanes, sources
from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import run_claim
from django_webhook_idempotency.models import WebhookEvent
from tests.app.models import Effect
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)


def effect(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id)


def test_a_look_at_many_sources_goes_on_with_the_next(
    client: Client, handlers: Any, monkeypatch: Any
) -> None:
    seen: list[str] = []

    def noted(providers: Any) -> Iterator[sources.Source]:
        for source in sources.sources(providers):
            seen.append(source.scope)
            yield source

    monkeypatch.setattr(lanes, "sources", noted)
    monkeypatch.setattr(lanes, "LOOK_SOURCES", 3)
    monkeypatch.setattr(lanes, "REFRESH", 0)
    handlers.add(effect)
    for number in range(20):
        deliver(client, "stripe", f"evt_{number}", path="/webhooks/stripe/loud/")
    rotation = Rotation()
    run_claim(rotation.claim())
    for number in range(7):
        deliver(client, "stripe", "evt_t", path=f"/webhooks/stripe/t{number}/")
    for _ in range(16):
        seen.clear()
        run_claim(rotation.claim())
        assert len(seen) <= 3
    assert Effect.objects.filter(event_id="evt_t").count() == 7


def test_processes_that_live_for_one_event_share_too(client: Client, handlers: Any) -> None:
    handlers.add(effect)
    deliver(client, "stripe", "evt_alone")
    for number in range(30):
        deliver(client, "github", f"evt_{number}")
    for _ in range(30):
        run_claim(Rotation().claim())
    assert Effect.objects.filter(event_id="evt_alone").exists()


@pytest.mark.only_on("mysql")
def test_a_look_reads_no_more_of_a_flood() -> None:
    now = timezone.now()
    WebhookEvent.objects.bulk_create(
        WebhookEvent(
            provider="stripe",
            lane="stripe",
            scope=f"t{number % 50}",
            event_id=str(number),
            dedupe_key=f"{number:064}",
            next_attempt_at=now,
        )
        for number in range(2000)
    )

    def reads() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            return sum(int(value) for _, value in cursor.fetchall())

    before = reads()
    assert len({source.scope for source in sources.sources()}) == 50
    assert reads() - before < 50 * (sources.LEAP + 2)


def test_a_row_without_a_time_stops_nobody(
    client: Client, handlers: Any, drain: Callable[[], int]
) -> None:
    handlers.add(lambda event: None)
    deliver(client, "stripe", "evt_1")
    deliver(client, "slack", "evt_2")
    WebhookEvent.objects.filter(event_id="evt_2").update(next_attempt_at=None)
    assert drain() == 1
    assert WebhookEvent.objects.get(event_id="evt_1").status == "processed"
