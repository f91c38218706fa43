"""Strangers send what they like: the tables stay within their bounds, and the real ones there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from django_webhook_idempotency.models import QuarantinedDelivery, WebhookDelivery
from django_webhook_idempotency.recovery.quarantine import reverify

from .conftest import FULL, PROVIDERS, RIGHT, WRONG, happened, send, statements_about

pytestmark = pytest.mark.django_db(transaction=True)

Configure = Callable[..., None]

#: How many a flood has, and how many real deliveries are refused beside it.
FLOOD, REAL = (100_000, 500) if FULL else (1_500, 100)
LIMIT = 2 * REAL


def real(client: Client, provider: str = "stripe") -> list[str]:
    """Let the real deliveries be refused; return the ids of their events."""
    ids = [f"evt_{number:05}" for number in range(REAL)]
    for event_id in ids:
        assert send(client, provider, event_id).status_code == 401
    return ids


def forged(client: Client, count: int, address: Callable[[int], str]) -> None:
    """Send well-formed deliveries with a signature of an attacker's own."""
    for number in range(count):
        send(
            client,
            "stripe",
            f"forged_{number}",
            secret="an-attackers-own",
            address=address(number),
        )


@pytest.mark.parametrize("first", ["the real ones", "the flood"])
def test_a_flood_without_signatures(
    client: Client, configure: Configure, effects: None, first: str
) -> None:
    configure(WRONG, QUARANTINE_LIMIT=LIMIT, REJECTED_LIMIT=200)
    ids = real(client) if first == "the real ones" else []
    refused = QuarantinedDelivery.objects.count()
    with statements_about("quarantineddelivery") as asked:
        for number in range(FLOOD):
            path = f"/webhooks/{PROVIDERS[number % 5]}/"
            answer = client.generic("POST", path, b"{}", "application/json")
            assert answer.status_code == 401
    assert asked == []
    assert QuarantinedDelivery.objects.count() == refused
    assert WebhookDelivery.objects.count() <= 5 * 200
    ids = ids or real(client)
    configure(RIGHT)
    assert reverify().processed == REAL
    assert happened() == ids


@pytest.mark.parametrize("first", ["the real ones", "the flood"])
def test_a_forged_flood_from_one_network(
    client: Client, configure: Configure, effects: None, first: str
) -> None:
    configure(WRONG, QUARANTINE_LIMIT=LIMIT, REJECTED_LIMIT=200)
    ids = real(client) if first == "the real ones" else []
    with statements_about("quarantineddelivery") as asked:
        forged(client, FLOOD, lambda number: f"203.0.113.{number % 250}")
    assert len(asked) <= 3 * REAL + 20  # once it is full, a look now and then
    ids = ids or real(client)
    assert QuarantinedDelivery.objects.count() == LIMIT
    assert WebhookDelivery.objects.count() <= 200 + 100
    configure(RIGHT)
    report = reverify()
    assert (report.processed, report.refused) == (REAL, REAL)
    assert happened() == ids


def test_a_forged_flood_from_everywhere_pushes_nothing_out(
    client: Client, configure: Configure, effects: None
) -> None:
    """It may fill what is left; what came before it stays."""
    configure(WRONG, QUARANTINE_LIMIT=LIMIT)
    ids = real(client)
    forged(client, FLOOD // 3, lambda number: f"198.{number % 200}.{number % 251}.1")
    assert QuarantinedDelivery.objects.count() == LIMIT
    configure(RIGHT)
    assert reverify().processed == REAL
    assert happened() == ids


def test_a_flood_to_one_provider_leaves_the_others_their_room(
    client: Client, configure: Configure, effects: None
) -> None:
    configure(WRONG, QUARANTINE_LIMIT=20)
    forged(client, 200, lambda number: f"198.{number}.1.1")
    for provider in PROVIDERS[:2]:
        send(client, provider, f"evt_{provider}")
    configure(RIGHT)
    assert reverify().processed == 2
    assert QuarantinedDelivery.objects.count() == 20


def test_bodies_are_bounded_too(client: Client, configure: Configure) -> None:
    """Rows times size is what a stranger can make us keep."""
    configure(WRONG, QUARANTINE_LIMIT=4, QUARANTINE_MAX_BODY=1000)
    for number in range(20):
        body = b'{"id": "%d", "fill": "%s"}' % (number, b"x" * 300 * number)
        send(client, "stripe", body=body, address=f"198.51.{number}.1")
    bodies = [bytes(row.body) for row in QuarantinedDelivery.objects.all()]
    assert len(bodies) <= 4 and all(len(body) <= 1000 for body in bodies)


def test_the_look_for_room_goes_through_the_index(client: Client, configure: Configure) -> None:
    """No count, and no row beyond the limit."""
    configure(WRONG, QUARANTINE_LIMIT=7)
    with statements_about("quarantineddelivery") as asked:
        send(client, "stripe")
    looks = [sql for sql in asked if sql.startswith("SELECT")]
    assert len(looks) == 2
    assert all("LIMIT 1 OFFSET" in sql and "COUNT" not in sql for sql in looks)
