"""Isolation levels above Django's default: stale snapshots and serialization failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from .conftest import Start
from .ledger_state import assert_finished, assert_quiet, effects
from .provider import Campaign, events, shuffled

OPTIONS: dict[str, dict[str, Any]] = {
    "postgresql": {"repeatable read": 3, "serializable": 4},
    "mysql": {"repeatable read": "repeatable read", "serializable": "serializable"},
}


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.only_on("postgresql", "mysql")
def test_copies_and_failures_at_a_higher_isolation_level(
    start: Start, level: str, size: Callable[[int, int], int], figures: Callable[..., None]
) -> None:
    """Half of the events fail once; atomic ones, leased ones, and some with two handlers."""
    options = {**connection.settings_dict["OPTIONS"]}
    options["isolation_level"] = OPTIONS[connection.vendor][level]
    server = start(workers=4, database={"OPTIONS": options}, LEASE=30, WAIT=1)
    count = size(120, 5)
    sent = []
    for kind in ("hammer.atomic", "hammer.leased", "hammer.two"):
        for failures in (0, 1):
            plan = {"after": 3, "failures": failures}
            sent += events(count, kind, f"{kind}-{failures}", plan=plan)
    tally = Campaign(server.port, shuffled(sent, 5)).run()
    figures(level=level, events=len(sent), **tally.figures())
    assert set(tally.statuses) <= {200, 409, 500, 503}
    assert tally.given_up == []
    assert_finished({event.id for event in sent})
    counted = effects()
    expected = {
        event.id: 1 + (event.plan["failures"] if event.type == "hammer.leased" else 0)
        for event in sent
    }
    assert counted == expected
    assert server.journal.lines("overlap") == []
    assert_quiet(server)
