"""`webhooks_status`: numbers that a person and a monitor can act on."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.exceptions import Reject
from django_webhook_idempotency.management.commands.webhooks_status import COLUMNS
from django_webhook_idempotency.models import WebhookEvent
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)


def asked(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command("webhooks_status", "--json", *arguments, stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def fail(event: WebhookEvent) -> None:
    if event.event_type == "never":
        raise Reject
    if event.event_type == "later":
        raise ValueError


@pytest.fixture
def traffic(client: Client, handlers: Any, drain: Callable[[], int]) -> None:
    """Two processed, one failed, one dead, one running and one pending event."""
    handlers.add(fail)
    for number, kind in enumerate(("fine", "fine", "later", "never")):
        deliver(client, "stripe", f"evt_{number}", kind)
    drain()
    deliver(client, "stripe", "evt_running", "fine")
    assert Rotation().claim() is not None
    deliver(client, "github", "evt_pending", "fine")


def test_counts_by_provider(traffic: None) -> None:
    found = asked()
    stripe, github = found["providers"]["stripe"], found["providers"]["github"]
    assert {
        name: stripe[name] for name in ("backlog", "pending", "processing", "failed", "dead")
    } == {
        "backlog": 2,
        "pending": 0,
        "processing": 1,
        "failed": 1,
        "dead": 1,
    }
    assert (github["backlog"], github["pending"]) == (1, 1)
    assert found["total"]["backlog"] == 3
    assert (found["healthy"], found["problems"]) == (True, [])


def test_rates(traffic: None) -> None:
    stripe = asked("--window", "2m")["providers"]["stripe"]
    assert stripe["received_per_minute"] == 2.5
    assert stripe["finished_per_minute"] == 1.0


def test_says_how_long_the_oldest_waits(traffic: None) -> None:
    WebhookEvent.objects.filter(event_id="evt_pending").update(
        received_at=timezone.now() - timedelta(hours=1),
        next_attempt_at=timezone.now() - timedelta(hours=1),
    )
    with pytest.raises(CommandError) as caught:
        asked()
    assert caught.value.returncode == 2
    assert "github: an event is late by 3600" in str(caught.value)
    found = asked("--max-late", "2h")
    assert 3600 <= found["providers"]["github"]["late_seconds"] < 3700
    assert 3600 <= found["total"]["waiting_seconds"] < 3700
    assert asked("--provider", "stripe")["healthy"]


def test_what_waits_for_its_next_attempt_is_not_late(traffic: None) -> None:
    WebhookEvent.objects.filter(event_type="later").update(
        received_at=timezone.now() - timedelta(hours=1),
        next_attempt_at=timezone.now() + timedelta(hours=1),
    )
    found = asked()
    assert found["healthy"]
    assert found["providers"]["stripe"]["late_seconds"] is None


@pytest.mark.parametrize(
    ("arguments", "healthy"),
    [
        (("--max-backlog", "2"), True),
        (("--max-backlog", "1"), False),
        (("--max-dead", "1"), True),
        (("--max-dead", "0"), False),
    ],
)
def test_limits(traffic: None, arguments: tuple[str, ...], healthy: bool) -> None:
    if healthy:
        assert asked(*arguments)["healthy"]
    else:
        with pytest.raises(CommandError) as caught:
            asked(*arguments)
        assert caught.value.returncode == 2


def test_a_person_gets_a_table(traffic: None) -> None:
    out = StringIO()
    call_command("webhooks_status", stdout=out)
    lines = out.getvalue().splitlines()
    assert lines[0].split() == list(COLUMNS)
    stripe = next(line for line in lines if line.startswith("stripe"))
    assert stripe.split()[1:6] == ["2", "0", "1", "1", "1"]
    assert lines[6].startswith("total")
    assert lines[-1].startswith("stripe: secret ") and "last used 0:00:0" in lines[-1]


def test_a_provider_that_nobody_knows(db: None) -> None:
    with pytest.raises(CommandError, match="Nothing is known of stripes"):
        asked("--provider", "stripes")


@pytest.mark.parametrize("arguments", [("--max-late", "soon"), ("--max-dead", "-1")])
def test_arguments_that_make_no_sense(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match=r"is not a|argument"):
        call_command("webhooks_status", *arguments)
