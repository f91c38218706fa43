"""The insert that decides, in the words of each database."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, connection, connections, transaction
from django.test import Client

from django_webhook_idempotency.exceptions import StoreUnavailable
from django_webhook_idempotency.inserts import insert_once
from django_webhook_idempotency.models import WebhookDelivery, WebhookEvent, digest_of
from tests.app.models import Effect
from tests.deliveries import body_of, deliver

pytestmark = pytest.mark.django_db


def event_of(event_id: str, **values: Any) -> WebhookEvent:
    key = digest_of("sangho", "", event_id)
    return WebhookEvent(
        **{"provider": "sangho", "event_id": event_id, "dedupe_key": key, "status": "pending"}
        | values
    )


def test_only_the_first_is_inserted() -> None:
    first, copy = event_of("evt_1"), event_of("evt_1")
    inserted = WebhookEvent.objects.insert_once(first)
    assert inserted.won
    assert not WebhookEvent.objects.insert_once(copy).won
    assert copy._state.adding
    assert WebhookEvent.objects.get().pk == first.pk == inserted.pk


def test_the_secondary_key_is_as_unique() -> None:
    assert WebhookEvent.objects.insert_once(event_of("evt_1", secondary_key="a" * 64)).won
    assert not WebhookEvent.objects.insert_once(event_of("evt_2", secondary_key="a" * 64)).won
    assert WebhookEvent.objects.insert_once(event_of("evt_3")).won
    assert WebhookEvent.objects.insert_once(event_of("evt_4")).won


@pytest.mark.parametrize("values", [{"provider": None}, {"status": None}, {"attempts": None}])
def test_only_a_conflict_is_silent(values: dict[str, Any]) -> None:
    """DESIGN §4: INSERT OR IGNORE and INSERT IGNORE would let these pass."""
    with pytest.raises(DatabaseError), transaction.atomic():
        WebhookEvent.objects.insert_once(event_of("evt_1", **values))
    assert not WebhookEvent.objects.exists()


def test_nothing_is_truncated_in_silence() -> None:
    """MySQL's INSERT IGNORE would cut it and two long ids would be one."""
    long = event_of("evt_1", provider="p" * 65)
    if connection.vendor == "sqlite":  # has no lengths
        assert WebhookEvent.objects.insert_once(long).won
        assert WebhookEvent.objects.get().provider == "p" * 65
    else:
        with pytest.raises(DatabaseError), transaction.atomic():
            WebhookEvent.objects.insert_once(long)


def test_a_database_that_is_not_supported(monkeypatch: Any) -> None:
    monkeypatch.setattr(type(connections["default"]), "vendor", "oracle")
    with pytest.raises(StoreUnavailable, match="'oracle' is not supported"):
        insert_once(connections["default"], event_of("evt_1"), find_twin=False)


if connection.vendor == "mysql":

    @pytest.fixture
    def no_returning(monkeypatch: Any) -> None:
        """MySQL knows no RETURNING; its statements are ones that MariaDB understands."""
        monkeypatch.setattr(connection.features, "can_return_columns_from_insert", False)

    @pytest.mark.usefixtures("no_returning")
    def test_without_returning(client: Client, handlers: Any) -> None:
        handlers.add(lambda event: Effect.objects.create(event_id=event.event_id))
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 17")
            answers = [deliver(client, "github").json()["status"] for _ in range(2)]
            deliver(client, "github", "guid-2", body=body_of("github", "evt_1"))
            cursor.execute("SELECT @@SESSION.innodb_lock_wait_timeout")
            assert cursor.fetchone() == (17,)
        assert answers == ["processed", "duplicate"]
        assert Effect.objects.count() == 2
        assert WebhookDelivery.objects.latest("id").conflict
