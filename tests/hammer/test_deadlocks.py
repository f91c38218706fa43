"""Handlers that lock the same rows in opposite order."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from django.db import ProgrammingError, connection, transaction

from tests.app.models import Effect

from .conftest import Start
from .journal import Line
from .ledger_state import assert_exactly_once, assert_quiet
from .provider import Campaign, Event, events, shuffled
from .server import Server

SOONER = "-c deadlock_timeout=100ms"


def may_look_sooner() -> bool:
    """Whether this role may make PostgreSQL look for deadlocks before the usual second is over."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL deadlock_timeout = '100ms'")
    except ProgrammingError:  # only a superuser may, or who was granted it
        return False
    return True


def living_overlaps(server: Server) -> list[Line]:
    """Handlers that were called while another one of their event could still have committed.

    The database ends the victim's transaction and lets a copy in at once, some milliseconds before
    the victim's handler has heard of it.
    """
    found = []
    for overlap in server.journal.lines("overlap"):
        inside = {
            line.pid: line
            for line in server.journal.lines("enter", overlap.event)
            if line.at < overlap.at and line.pid != overlap.pid
        }
        for pid, entered in inside.items():
            left = server.journal.lines("leave", overlap.event)
            ends = (line for line in left if line.pid == pid and line.at > entered.at)
            end = next(ends, None)
            if end is None or (end.at > overlap.at and end.note != "OperationalError"):
                found.append(entered)
    return found


@pytest.mark.only_on("postgresql", "mysql")
def test_deadlocks_are_tried_again(
    start: Start, size: Callable[[int, int], int], figures: Callable[..., None]
) -> None:
    """WB-046: run again at once, or answered 503 and redelivered; every effect once."""
    rows = [Effect.objects.create(event_id="row", name="row").pk for _ in range(2)]
    sent = []
    for event in events(size(300, 25)):
        order = random.sample(rows, 2)
        sent.append(Event(event.provider, event.id, plan={"rows": order, "between": 15}))
    options = {**connection.settings_dict["OPTIONS"]}
    if connection.vendor == "postgresql" and may_look_sooner():
        options["options"] = f"{options.get('options', '')} {SOONER}"
    server = start(workers=6, database={"OPTIONS": options})
    tally = Campaign(server.port, shuffled(sent, 2)).run()
    undone = [
        line for line in server.journal.lines("leave") if line.note not in ("", "RuntimeError")
    ]
    overlaps = len(server.journal.lines("overlap"))
    figures(events=len(sent), deadlocks=len(undone), overlaps=overlaps, **tally.figures())
    assert len(undone) >= 3, "no deadlock happened, so nothing was shown"
    assert set(tally.statuses) <= {200, 409, 503}
    assert tally.given_up == []
    assert_exactly_once(sent)
    assert living_overlaps(server) == []
    assert_quiet(server)
