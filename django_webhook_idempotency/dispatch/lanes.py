"""Whose turn it is: sources share the workers, however much any of them sends.

A source is one scope of one provider. Each in turn gives its oldest due event.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from django.db import connections
from django.utils import timezone

from .. import ledger
from ..models import WebhookEvent
from .claims import Claim, claim_due
from .runs import retried

#: Seconds after which the sources are listed again, so that new ones get their turn.
REFRESH = 0.5
#: Scopes of one provider that one statement lists.
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Source:
    """One scope of one provider that has unfinished events, and when the first of them is due."""

    lane: str
    scope: str
    due_at: datetime = field(compare=False)


def sources(providers: Collection[str] | None = None) -> Iterator[Source]:
    """Every source with unfinished events; a step through the index for each, not for each event.

    `providers` limits them to some.
    """
    for lane in _lanes():
        if providers is None or lane in providers:
            yield from _scopes(lane)


def _lanes() -> Iterator[str]:
    ordered = WebhookEvent.objects.using(ledger.alias()).filter(lane__isnull=False)
    ordered = ordered.order_by("lane")
    lane = ordered.values_list("lane", flat=True).first()
    while lane is not None:
        yield lane
        lane = ordered.filter(lane__gt=lane).values_list("lane", flat=True).first()


def _scopes(lane: str) -> Iterator[Source]:
    """The sources of one provider, a page of them in a statement."""
    connection = connections[ledger.alias()]
    table = connection.ops.quote_name(WebhookEvent._meta.db_table)
    rows = _page(_FIRST_SCOPES.format(table=table), [lane] * 3)
    while rows:
        for scope, due_at in rows:
            yield Source(lane, scope, due_at)
        if len(rows) < PAGE:
            return
        rows = _page(_NEXT_SCOPES.format(table=table), [lane, rows[-1][0], lane, lane])


def _page(statement: str, values: list[str]) -> list[tuple[str, datetime]]:
    """Scopes and when the first event of each is due."""
    connection = connections[ledger.alias()]
    field = WebhookEvent._meta.get_field("next_attempt_at")
    column = field.get_col("e")
    converters = connection.ops.get_db_converters(column) + field.get_db_converters(connection)
    with connection.cursor() as cursor:
        cursor.execute(statement, [*values, PAGE])
        rows = cursor.fetchall()
    found = []
    for scope, due_at in rows:
        for converter in converters:
            due_at = converter(due_at, column, connection)
        found.append((scope, due_at))
    return found


#: A walk from scope to scope that reads one entry of the index for each.
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


class Rotation:
    """Gives each source its turn; shared by the threads of one process."""

    def __init__(self, providers: Collection[str] | None = None) -> None:
        self.providers = providers
        #: When the next event is due that was not at the last look; None if there is none.
        self.next_due: datetime | None = None
        self._lock = threading.Lock()
        self._turns: deque[Source] = deque()
        self._looked = float("-inf")

    def claim(self) -> Claim | None:
        """Claim the next event; None if nothing is due.

        Raises StoreUnavailable, or the database's own error.
        """
        looked = False
        while True:
            with self._lock:
                if not self._turns and looked:
                    return None
                if not self._turns or time.monotonic() - self._looked > REFRESH:
                    self._look()
                    looked = True
                source = self._turns.popleft() if self._turns else None
            if source is None:
                return None
            claim = retried(partial(claim_due, source.lane, source.scope))
            if claim is not None:
                with self._lock:
                    self._turns.append(source)
                return claim

    def _look(self) -> None:
        """List the sources; those that had a place in the order keep it."""
        now = timezone.now()
        found = list(sources(self.providers))
        due = {source: source for source in found if source.due_at <= now}
        kept = [source for source in self._turns if due.pop(source, None) is not None]
        self._turns = deque([*kept, *due])
        self.next_due = min((s.due_at for s in found if s.due_at > now), default=None)
        self._looked = time.monotonic()
