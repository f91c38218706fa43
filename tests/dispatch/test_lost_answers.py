"""The answer to a commit is lost on a connection from before the request: it was applied or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client

from django_webhook_idempotency.dispatch import leased, receipt
from django_webhook_idempotency.dispatch.serving import serve
from django_webhook_idempotency.exceptions import Reject
from django_webhook_idempotency.models import WebhookDelivery, WebhookEvent
from django_webhook_idempotency.querysets import WebhookEventQuerySet
from tests.app.models import Effect
from tests.deliveries import deliver

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.only_on("postgresql", "mysql"),  # SQLite has no connection to lose
]


def effect(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id)


@pytest.fixture
def processing(settings: Any) -> Callable[[str], None]:
    def choose(value: str) -> None:
        settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, "PROCESSING": value}

    return choose


def lose_the_first_insert(monkeypatch: Any) -> None:
    """Break the connection after the row of an event was inserted, before anybody is told."""
    connection.ensure_connection()
    insert = WebhookEventQuerySet.insert_once
    lost: list[bool] = []

    def lose(self: Any, event: Any, **more: Any) -> Any:
        inserted = insert(self, event, **more)
        if not lost:
            lost.append(True)
            connection.close()
            raise OperationalError("the answer is lost")
        return inserted

    monkeypatch.setattr(WebhookEventQuerySet, "insert_once", lose)


def test_an_event_that_was_claimed_runs_all_the_same(
    client: Client, handlers: Any, monkeypatch: Any
) -> None:
    """GitHub would not send it again, and nobody else would run it until its lease is over."""
    handlers.add(effect, atomic=False)
    lose_the_first_insert(monkeypatch)
    assert deliver(client, "github").json()["status"] == "processed"
    assert deliver(client, "github").json()["status"] == "duplicate"
    assert Effect.objects.count() == 1
    assert WebhookEvent.objects.get().attempts == 1


@pytest.mark.parametrize("applied", [True, False])
def test_a_receipt_is_told_and_answered_as_what_it_is(
    client: Client, handlers: Any, monkeypatch: Any, processing: Any, applied: bool
) -> None:
    processing("queued")
    handlers.add(effect)
    connection.ensure_connection()
    told: list[int] = []
    monkeypatch.setattr(receipt, "tell", told.append)
    commit = BaseDatabaseWrapper.commit
    lost: list[bool] = []

    def lose(self: Any) -> None:
        if lost:
            return commit(self)
        lost.append(True)
        if applied:
            commit(self)
        self.connection.close()
        raise OperationalError("the answer is lost")

    monkeypatch.setattr(BaseDatabaseWrapper, "commit", lose)
    answer = deliver(client, "stripe")
    assert (answer.status_code, answer.json()["status"]) == (202, "accepted")
    assert told == [WebhookEvent.objects.get().pk]
    assert WebhookDelivery.objects.get().outcome == "accepted"


def test_a_redelivery_is_told_and_answered_as_what_it_is(
    client: Client, handlers: Any, monkeypatch: Any, processing: Any
) -> None:
    processing("queued")

    def reject(event: WebhookEvent) -> None:
        raise Reject("no")

    handlers.add(reject)
    deliver(client, "stripe")
    serve()
    connection.ensure_connection()
    told: list[int] = []
    monkeypatch.setattr(receipt, "tell", told.append)
    commit = BaseDatabaseWrapper.commit
    commits: list[bool] = []

    def lose(self: Any) -> None:
        commits.append(True)
        commit(self)
        if len(commits) == 2:  # the first is that of the insert which finds the key taken
            self.connection.close()
            raise OperationalError("the answer is lost")

    with monkeypatch.context() as broken:
        broken.setattr(BaseDatabaseWrapper, "commit", lose)
        assert deliver(client, "stripe").json()["status"] == "accepted"
    assert told == [WebhookEvent.objects.get().pk]


def test_a_claim_is_not_run_after_somebody_else_ran_the_event(
    client: Client, handlers: Any, monkeypatch: Any
) -> None:
    """With a store that decides alone, in the moment in which nobody has the lease."""

    class Store:
        exclusive = True
        held: ClassVar[dict[str, str]] = {}
        acquired = 0

        def acquire(self, key: str, token: str, lease: Any) -> bool:
            Store.acquired += 1
            if Store.acquired == 3:  # the second try looks at what the first has inserted
                deliver(client, "stripe")
            return self.renew(key, token, lease)

        def renew(self, key: str, token: str, lease: Any) -> bool:
            return self.held.setdefault(key, token) == token

        def release(self, key: str, token: str) -> None:
            if self.held.get(key) == token:
                del self.held[key]

    monkeypatch.setattr(leased, "lease_store", Store)
    handlers.add(effect, atomic=False)
    lose_the_first_insert(monkeypatch)
    deliver(client, "stripe")
    assert Effect.objects.count() == 1
