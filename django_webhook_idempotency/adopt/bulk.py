"""Insert many finished events in one statement, in each database's own words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..inserts import insert_once, is_key_conflict
from ..models import WebhookEvent


def insert_many_once(connection: BaseDatabaseWrapper, events: Sequence[WebhookEvent]) -> int:
    """Insert those of some events whose keys are free, and return how many.

    For rows that nobody waits for: where somebody is inserting the same key, this waits for them.
    """
    if connection.vendor == "mysql":
        return _mysql_many(connection, events)
    inserted = 0
    for into, rows in _parts(connection, events):
        inserted += _insert_rows(connection, into, rows, " ON CONFLICT DO NOTHING")
    return inserted


def _mysql_many(connection: BaseDatabaseWrapper, events: Sequence[WebhookEvent]) -> int:
    # One taken key undoes the statement; then each row has to say for itself who won.
    try:
        with transaction.atomic(using=connection.alias):
            return sum(
                _insert_rows(connection, into, rows) for into, rows in _parts(connection, events)
            )
    except IntegrityError as error:
        if not events or not is_key_conflict(error, events[0]):
            raise
    return sum(insert_once(connection, event, find_twin=False).won for event in events)


def _parts(
    connection: BaseDatabaseWrapper, events: Sequence[WebhookEvent]
) -> Iterator[tuple[str, list[list[Any]]]]:
    """The table with its columns, and the rows of as many events as one statement takes."""
    if not events:
        return
    fields = [field for field in events[0]._meta.concrete_fields if not field.primary_key]
    names = ", ".join(connection.ops.quote_name(field.column or "") for field in fields)
    into = f"{connection.ops.quote_name(events[0]._meta.db_table)} ({names})"
    most = connection.features.max_query_params
    size = len(events) if most is None else most // len(fields)
    for start in range(0, len(events), size):
        yield (
            into,
            [
                [
                    field.get_db_prep_save(getattr(event, field.attname), connection)
                    for field in fields
                ]
                for event in events[start : start + size]
            ],
        )


def _insert_rows(
    connection: BaseDatabaseWrapper, into: str, rows: list[list[Any]], silence: str = ""
) -> int:
    marks = ", ".join([f"({', '.join(['%s'] * len(rows[0]))})"] * len(rows))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {into} VALUES {marks}{silence}",  # noqa: S608
            [value for row in rows for value in row],
        )
        return int(cursor.rowcount)
