"""`recover_webhooks --quarantine`: the same from the command line, and who else might be asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from django_webhook_idempotency.models import QuarantinedDelivery, WebhookEvent
from tests.app.models import Effect

from .conftest import RIGHT, WRONG, send

pytestmark = pytest.mark.django_db(transaction=True)


def recover(*arguments: str) -> str:
    out = StringIO()
    call_command("recover_webhooks", "--quarantine", *arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def refused(client: Client, wrong: None, configure: Callable[..., None]) -> None:
    """Two deliveries refused for a wrong secret, which is right now."""
    assert send(client, "stripe").status_code == 401
    assert send(client, "github").status_code == 401
    configure(RIGHT)


def test_says_what_would_hold_and_then_processes_it(refused: None, effects: None) -> None:
    assert "nothing was done" in recover("--dry-run")
    assert QuarantinedDelivery.objects.count() == 2
    lines = recover().splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["looked", "at", "2"],
        ["verified", "2"],
        ["processed", "2"],
    ]
    assert QuarantinedDelivery.objects.count() == 0
    assert Effect.objects.count() == 2
    assert recover().split()[-1] == "0"


def test_only_some_providers_and_so_many_at_the_most(refused: None, effects: None) -> None:
    assert json.loads(recover("stripe", "--json"))["processed"] == 1
    assert WebhookEvent.objects.get().provider == "stripe"
    assert json.loads(recover("--limit", "1", "--json"))["looked_at"] == 1


def test_what_still_does_not_hold_is_no_failure(
    client: Client, configure: Callable[..., None]
) -> None:
    configure(WRONG)
    send(client, "stripe")
    assert json.loads(recover("--json"))["refused"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--since", "1d"], "--since"), (["strpe"], "Not in the settings: strpe")],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        recover(*arguments)


def test_a_provider_that_cannot_be_read_is_named(
    refused: None, configure: Callable[..., None], settings: Any
) -> None:
    configure({**RIGHT, "stripe": ""})
    with pytest.raises(CommandError, match="stripe"):
        recover()
    assert QuarantinedDelivery.objects.filter(provider="stripe").exists()
