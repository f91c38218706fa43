"""The sources that have work, found by steps through an index: a flood costs what an event does."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connections

from .. import ledger
from ..models import WebhookEvent

#: Scopes of one provider that one statement lists at the most.
PAGE = 1000
#: Entries of the index that one statement of `_leaps` reads at the least.
LEAP = 8


@dataclass(frozen=True, slots=True)
class Source:
    """One scope of one provider that has unfinished events, and when the first of them is due."""

    lane: str
    scope: str
    due_at: datetime = field(compare=False)


def sources(providers: Collection[str] | None = None) -> Iterator[Source]:
    """Every source with unfinished events; the cost is one for each, not for each event.

    `providers` limits them to some. The next statement is sent when what the last one found is used
    up, so a reader may pause.
    """
    scopes = _leaps if connections[ledger.alias()].vendor == "mysql" else _walk
    for lane in _lanes():
        if providers is None or lane in providers:
            yield from scopes(lane)


def _lanes() -> Iterator[str]:
    ordered = WebhookEvent.objects.using(ledger.alias()).filter(lane__isnull=False)
    ordered = ordered.order_by("lane")
    lane = ordered.values_list("lane", flat=True).first()
    while lane is not None:
        yield lane
        lane = ordered.filter(lane__gt=lane).values_list("lane", flat=True).first()


def _leaps(lane: str) -> Iterator[Source]:
    """The sources of one provider, for MySQL and MariaDB: leap from what was read past its scope.

    Those use a bound of a correlated subquery for no step through an index: a walk would read every
    event for every source. A leap reads twice as many entries as the last one found sources: many
    where each has an event or two, and never a flood.
    """
    limit, rows = LEAP, _rows(_FIRST_LEAP, [lane, LEAP])
    while rows:
        found: dict[str, datetime] = {}
        for scope, due_at in rows:
            found.setdefault(scope, due_at)
        for scope, due_at in found.items():
            yield Source(lane, scope, due_at)
        if len(rows) < limit:
            return
        limit = max(LEAP, min(2 * len(found), PAGE))
        rows = _rows(_NEXT_LEAP, [lane, rows[-1][0], limit])


def _walk(lane: str) -> Iterator[Source]:
    """The sources of one provider, a page of them in a statement."""
    rows = _rows(_FIRST_SCOPES, [lane, lane, lane, PAGE])
    while rows:
        for scope, due_at in rows:
            if due_at is not None:
                yield Source(lane, scope, due_at)
        if len(rows) < PAGE:
            return
        rows = _rows(_NEXT_SCOPES, [lane, rows[-1][0], lane, lane, PAGE])


def _rows(statement: str, values: list[str | int]) -> list[tuple[str, Any]]:
    """Scopes and when an event of each is due; None where no event has a time."""
    connection = connections[ledger.alias()]
    field = WebhookEvent._meta.get_field("next_attempt_at")
    column = field.get_col("e")
    converters = connection.ops.get_db_converters(column) + field.get_db_converters(connection)
    table = connection.ops.quote_name(WebhookEvent._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(statement.format(table=table), values)
        rows = cursor.fetchall()
    found = []
    for scope, due_at in rows:
        for converter in converters:
            due_at = converter(due_at, column, connection)
        found.append((scope, due_at))
    return found


#: The first events of a scope and, if it has few, of the next ones. While the statistics of the
#: table are old, the bound on the scope counts for little, and all before it would be read as well.
_LEAP = """
SELECT scope, next_attempt_at FROM {{table}} FORCE INDEX (webhook_event_lane)
WHERE lane = %s {start} AND next_attempt_at IS NOT NULL
ORDER BY scope, next_attempt_at LIMIT %s
"""
_FIRST_LEAP = _LEAP.format(start="")
_NEXT_LEAP = _LEAP.format(start="AND scope > %s")

#: A walk from scope to scope that reads two entries of the index for each.
_WALK = """
WITH RECURSIVE walk (scope) AS (
    SELECT MIN(scope) FROM {{table}} WHERE lane = %s {start}
    UNION ALL
    SELECT (SELECT MIN(e.scope) FROM {{table}} e WHERE e.lane = %s AND e.scope > walk.scope)
    FROM walk WHERE walk.scope IS NOT NULL
)
SELECT walk.scope,
    (SELECT MIN(e.next_attempt_at) FROM {{table}} e WHERE e.lane = %s AND e.scope = walk.scope)
FROM walk WHERE walk.scope IS NOT NULL LIMIT %s
"""
_FIRST_SCOPES = _WALK.format(start="")
_NEXT_SCOPES = _WALK.format(start="AND scope > %s")
