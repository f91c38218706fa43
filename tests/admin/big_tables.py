"""Rows enough that a planner has to choose."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain, islice
from typing import Any

from django.db import connection, models
from django.utils import timezone

from django_webhook_idempotency.enums import EventStatus, Outcome

EVENT_ROWS, DELIVERY_ROWS = 60_000, 100_000
PROVIDERS = ["stripe", "stripe", "stripe", "github", "sangho", "slack"]
START = timezone.now() - timedelta(days=800)


def status_of(number: int) -> EventStatus:
    """Mostly processed; a few dead, and at first many ignored."""
    if number % 7_000 == 3:
        return EventStatus.DEAD
    is_old = number < EVENT_ROWS // 4
    return EventStatus.IGNORED if is_old and number % 2 else EventStatus.PROCESSED


def events() -> Iterator[dict[str, Any]]:
    """Two years of events: most processed, some types and statuses rare, one provider long silent.

    A planner that trusts in how common the silent one is would walk through all that is newer.
    """
    chance = random.Random(11)
    types = [f"kind_{number}.happened" for number in range(30)]
    for number in range(EVENT_ROWS):
        is_old = number < EVENT_ROWS // 3 and chance.random() < 0.7
        yield {
            "provider": "silent" if is_old else chance.choice(PROVIDERS),
            "scope": f"tenant_{chance.randrange(200)}",
            "event_id": f"evt_{number}",
            "dedupe_key": f"{number:064x}",
            "event_type": "rare.happened" if number % 9_999 == 7 else chance.choice(types),
            "status": status_of(number),
            "body": b"x" * 300,
            "received_at": START + timedelta(minutes=19 * number + chance.randrange(40)),
        }


def deliveries(first: int) -> Iterator[dict[str, Any]]:
    """More deliveries than events, some of none, few with a conflict."""
    chance = random.Random(12)
    for number in range(DELIVERY_ROWS):
        rare = number % 9_000 == 5
        is_old = number < DELIVERY_ROWS // 4 and chance.random() < 0.7
        yield {
            "event_id": None if number % 20 == 0 else first + number * EVENT_ROWS // DELIVERY_ROWS,
            "provider": "silent" if is_old else chance.choice(PROVIDERS),
            "received_at": START + timedelta(minutes=11 * number + chance.randrange(40)),
            "outcome": Outcome.MALFORMED if rare else chance.choice(list(Outcome)[:3]),
            "status": 200,
            "retry_reason": "http_timeout" if number % 50 == 0 else "",
            "conflict": rare,
            "headers": {"user-agent": "x" * 80},
        }


def insert(model: type[models.Model], rows: Iterator[dict[str, Any]], batch: int = 2_000) -> None:
    """Insert rows as `bulk_create` does, in a fraction of its minute.

    What is plain and the same in all rows stands in the statement, so that no driver handles it
    a hundred thousand times.
    """
    first = next(rows)
    sample = model(**first)
    texts: dict[str, str] = {}
    given: list[models.Field[Any, Any]] = []
    for field in model._meta.concrete_fields:
        value = field.get_db_prep_save(field.pre_save(sample, add=True), connection)
        if field.attname in first or not (value is None or isinstance(value, (bool, int, str))):
            given.append(field)
        elif not field.primary_key:
            plain = str(value) if isinstance(value, str) else value  # of an enum, its value
            texts[field.column] = "NULL" if value is None else repr(plain)
    columns = [*(field.column for field in given), *texts]
    one = f"({', '.join(['%s'] * len(given) + list(texts.values()))})"
    head = (
        f"INSERT INTO {connection.ops.quote_name(model._meta.db_table)} "
        f"({', '.join(map(connection.ops.quote_name, columns))}) VALUES "
    )
    same = {field.attname: getattr(sample, field.attname) for field in given}
    rows = chain([first], rows)
    with connection.cursor() as cursor:
        while part := [{**same, **row} for row in islice(rows, batch)]:
            cursor.execute(
                head + ", ".join([one] * len(part)),
                [
                    field.get_db_prep_save(row[field.attname], connection)
                    for row in part
                    for field in given
                ],
            )
