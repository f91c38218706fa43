"""Each handler reads the payload as it came, whatever another one has done to it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import run_claim
from django_webhook_idempotency.models import WebhookEvent
from django_webhook_idempotency.providers import incoming
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["inline", "queued"])
def send(request: Any, settings: Any, client: Client) -> Any:
    """Give a function that delivers an event and has it handled."""
    settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, "PROCESSING": request.param}

    def run(**more: Any) -> None:
        deliver(client, "stripe", **more)
        if request.param == "queued":
            run_claim(Rotation().claim())

    return run


@pytest.mark.parametrize("atomic", [True, False])
def test_what_one_takes_out_of_it_is_there_for_the_next(
    send: Any, handlers: Any, atomic: bool
) -> None:
    seen: list[Any] = []

    def take(event: WebhookEvent) -> None:
        seen.append(event.data.pop("object", None))

    handlers.add(take, name="first", atomic=atomic)
    handlers.add(take, name="second", atomic=atomic)
    send(object="key")
    assert seen == ["key", "key"]


def test_and_for_the_same_one_after_a_deadlock(send: Any, handlers: Any) -> None:
    seen: list[Any] = []

    def take(event: WebhookEvent) -> None:
        seen.append(event.data.pop("object", None))
        if len(seen) == 1:
            raise OperationalError(1213, "Deadlock found when trying to get lock")

    handlers.add(take)
    send(object="key")
    assert seen == ["key", "key"]


def test_a_single_handler_has_it_parsed_for_it_once(
    client: Client, handlers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, parsed = incoming.parse_json, []

    def count(text: Any, charset: str = "") -> Any:
        parsed.append(text)
        return parse(text, charset)

    monkeypatch.setattr(incoming, "parse_json", count)
    handlers.add(lambda event: (event.data, event.data))
    deliver(client, "stripe")
    assert len(parsed) == 1
