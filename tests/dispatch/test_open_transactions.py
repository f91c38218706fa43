"""A handler that opens a transaction and does not end it: a failure of that event, and no more."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.test import Client

from django_webhook_idempotency.dispatch.blocks import Depth, _take_back
from django_webhook_idempotency.dispatch.serving import serve
from django_webhook_idempotency.models import WebhookEvent
from django_webhook_idempotency.signals import webhook_processed
from tests.app.models import Effect
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)


def leave_a_block_open(event: WebhookEvent) -> None:
    transaction.atomic().__enter__()
    Effect.objects.create(event_id=event.event_id)


def leave_two_blocks_open_and_raise(event: WebhookEvent) -> None:
    transaction.atomic().__enter__()
    transaction.atomic().__enter__()
    Effect.objects.create(event_id=event.event_id)
    raise ValueError("in the middle")


def leave_autocommit_off(event: WebhookEvent) -> None:
    transaction.set_autocommit(False)
    Effect.objects.create(event_id=event.event_id)


def leave_sql_open(event: WebhookEvent) -> None:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
    Effect.objects.create(event_id=event.event_id)


def effect(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id)


CARELESS = [
    pytest.param(leave_a_block_open, True, id="block-atomic"),
    pytest.param(leave_a_block_open, False, id="block-leased"),
    pytest.param(leave_two_blocks_open_and_raise, True, id="blocks-atomic"),
    pytest.param(leave_two_blocks_open_and_raise, False, id="blocks-leased"),
    pytest.param(leave_autocommit_off, True, id="autocommit-atomic"),
    pytest.param(leave_autocommit_off, False, id="autocommit-leased"),
    pytest.param(
        leave_sql_open, False, id="sql-leased", marks=pytest.mark.only_on("postgresql", "sqlite")
    ),
]


@pytest.fixture(params=["inline", "queued"])
def receive(request: pytest.FixtureRequest, client: Client, settings: Any) -> Callable[..., int]:
    """Give a function that delivers an event and has it run; returns the answer's status."""
    client.raise_request_exception = False
    settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, "PROCESSING": request.param}

    def receive(event_id: str, kind: str) -> int:
        status: int = deliver(client, "github", event_id, kind).status_code
        if request.param == "queued":
            assert status == 202
            serve()
        return status

    return receive


@pytest.mark.parametrize(("careless", "atomic"), CARELESS)
def test_it_fails_and_the_next_event_runs(
    receive: Callable[..., int], handlers: Any, careless: Any, atomic: bool
) -> None:
    """Nothing is answered 2xx that was not committed, and the connection is as good as new."""
    processed: list[str] = []

    def heard(event: WebhookEvent, **more: Any) -> None:
        processed.append(event.event_id)

    handlers.add(careless, pattern="t.careless", atomic=atomic)
    handlers.add(effect, pattern="t.fine")
    webhook_processed.connect(heard)
    try:
        assert receive("careless", "t.careless") in (500, 202)
        receive("fine", "t.fine")
    finally:
        webhook_processed.disconnect(heard)
    assert not connection.in_atomic_block
    assert connection.get_autocommit()
    stored = dict(WebhookEvent.objects.values_list("event_id", "status"))
    assert stored == {"careless": "failed", "fine": "processed"}
    assert processed == ["fine"]
    assert list(Effect.objects.values_list("event_id", flat=True)) == ["fine"]
    error = WebhookEvent.objects.get(event_id="careless").last_error
    assert error.startswith(("TransactionManagementError", "ValueError"))


def test_of_several_handlers_only_that_one_is_undone(
    receive: Callable[..., int], handlers: Any
) -> None:
    handlers.add(effect, name="first")
    handlers.add(leave_a_block_open, name="careless")
    handlers.add(effect, name="last")
    receive("evt_1", "t.several")
    event = WebhookEvent.objects.get()
    assert event.status == "failed"
    succeeded = event.runs.filter(error_class="").values_list("handler", flat=True)
    assert set(succeeded) == {"first", "last"}
    assert Effect.objects.count() == 2


@pytest.mark.only_on("postgresql")
def test_who_lives_with_a_lost_connection_has_left_nothing_open(
    receive: Callable[..., int], handlers: Any
) -> None:
    mails: list[str] = []

    def mail(event: WebhookEvent) -> None:
        mails.append(event.event_id)
        with suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    handlers.add(mail, atomic=False)
    receive("evt_1", "t.mail")
    assert (mails, WebhookEvent.objects.get().status) == (["evt_1"], "processed")


@pytest.mark.only_on("sqlite")
def test_what_is_left_open_in_memory_is_undone_too() -> None:
    """Closing does nothing there: the tests of many projects run so."""
    memory = DatabaseWrapper({**connection.settings_dict, "NAME": ":memory:"}, "memory")
    memory.ensure_connection()
    with closing(memory.connection):
        before = Depth.of(memory)
        with memory.cursor() as cursor:
            cursor.execute("BEGIN")
        assert _take_back(memory, before)
        assert not memory.connection.in_transaction
