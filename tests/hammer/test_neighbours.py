"""Different events never count as copies of each other, however close they are."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection, transaction

from django_webhook_idempotency.models import WebhookEvent, digest_of

pytestmark = pytest.mark.django_db(transaction=True)

LEVELS = ["READ COMMITTED", "REPEATABLE READ"]


#: Makes the keys of each test new: InnoDB takes wide locks around keys that were just deleted.
salt = ""


@pytest.fixture(autouse=True)
def new_keys() -> None:
    global salt
    salt = secrets.token_hex(8)


def event(hook: str, guid: str, body: str) -> WebhookEvent:
    """An event as GitHub's deliveries make it; without a body, as those of the others do."""
    return WebhookEvent(
        provider="github",
        event_id=guid,
        dedupe_key=digest_of("github", hook, guid, salt),
        content_key=digest_of("content", body, salt) if body else None,
        status="processed",
    )


def insert(new: WebhookEvent) -> bool:
    return WebhookEvent.objects.insert_once(new, find_twin=bool(new.content_key)).won


@contextmanager
def being_handled(*events: WebhookEvent, level: str) -> Iterator[None]:
    """Hold claims on events in a transaction that stays open, as a slow handler does."""
    held, over = threading.Event(), threading.Event()
    won: list[bool] = []

    def hold() -> None:
        try:
            set_isolation(level)
            with transaction.atomic():
                won.extend(map(insert, events))
                held.set()
                over.wait(60)
        finally:
            held.set()
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    try:
        assert won == [True] * len(events)
        yield
    finally:
        over.set()
        thread.join()


def set_isolation(level: str) -> None:
    if connection.vendor == "mysql":
        statement = f"SET SESSION TRANSACTION ISOLATION LEVEL {level}"
    else:
        statement = f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}"
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    set_isolation(request.param)
    yield request.param
    connection.close()


@pytest.mark.parametrize("rows", [0, 5, 50])
@pytest.mark.only_on("postgresql", "mysql")
def test_a_claim_holds_up_no_other_event(level: str, rows: int) -> None:
    """WB-030: two hooks deliver one body under one GUID, at the same moment, and both run."""
    for number in range(rows):
        insert(event("1", f"old-{number}", f"old body {number}" if number % 2 else ""))
    with being_handled(event("1", "guid", "body"), event("1", "other", ""), level=level):
        neighbours = [
            event("2", "guid", "body"),  # another hook, the same body and GUID
            event("1", "guid-2", "body"),  # the same body again, under another GUID
            *(event("1", f"new-{number}", f"new body {number}") for number in range(10)),
            *(event("1", f"plain-{number}", "") for number in range(10)),
        ]
        for neighbour in neighbours:
            with transaction.atomic():
                assert insert(neighbour), neighbour
        assert not insert(event("1", "guid", "body"))
        assert not insert(event("1", "other", ""))


@pytest.mark.only_on("postgresql", "mysql")
def test_a_copy_that_was_turned_away_holds_up_no_other_event(level: str) -> None:
    """The conflict on a finished event leaves no lock in the way of its neighbours' inserts.

    InnoDB keeps one on the gap before a duplicate key until the copy's transaction is rolled back,
    which is at once; whoever meets it in between looks again within milliseconds.
    """
    old = [event("1", f"old-{number}", f"body {number}") for number in range(20)]
    assert all(map(insert, old))
    turned_away, over = threading.Event(), threading.Event()

    def copy() -> None:
        try:
            set_isolation(level)
            with transaction.atomic():
                assert not any(map(insert, old))
                if connection.vendor != "mysql":
                    turned_away.set()
                    over.wait(60)
                transaction.set_rollback(True)
        finally:
            connection.close()
            turned_away.set()

    thread = threading.Thread(target=copy)
    thread.start()
    try:
        turned_away.wait(60)
        for number in range(40):
            assert insert(event("1", f"new-{number}", f"new body {number}"))
    finally:
        over.set()
        thread.join()
