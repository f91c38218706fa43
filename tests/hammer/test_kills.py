"""`kill -9` of workers inside a handler, then redelivery: none lost, none doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Start
from .killer import Killer
from .ledger_state import (
    assert_all_accepted,
    assert_exactly_once,
    assert_finished,
    assert_quiet,
    effects,
)
from .provider import Campaign, Event, Tally
from .server import Server

LEASE = 1.5  # seconds


def kill_while_sending(server: Server, kind: str, kills: int) -> tuple[Killer, list[Event], Tally]:
    """Send events until so many workers were killed inside a handler; then all is redelivered."""
    killer = Killer(server, kills, linger=0.03)
    sent: dict[str, Event] = {}

    def deliveries() -> Any:
        for event in killer.feed(kind, at_most=kills * 60):
            sent[event.id] = event
            yield event

    killer.start()
    try:
        tally = Campaign(server.port, deliveries()).run()
    finally:
        killer.stop()
    assert killer.inside >= kills
    return killer, list(sent.values()), tally


def runs_of(server: Server) -> Counter[str]:
    return Counter(line.event for line in server.journal.lines("enter"))


def test_a_killed_transaction_leaves_nothing_and_its_redelivery_runs(
    start: Start, size: Callable[[int, int], int], figures: Callable[..., None]
) -> None:
    """WB-009, WB-010: for atomic handlers exactly one effect each."""
    server = start(workers=4)
    killer, sent, tally = kill_while_sending(server, "hammer.atomic", size(200, 8))
    runs, cuts = runs_of(server), killer.cuts()
    figures(
        events=len(sent),
        kills_inside=killer.inside,
        kills=len(killer.dead),
        runs=runs.total(),
        **tally.figures(),
    )
    assert_all_accepted(tally, sent)
    assert_exactly_once(sent)
    assert server.journal.lines("overlap") == []
    unexplained = {key: times for key, times in runs.items() if times > 1 + cuts[key]}
    assert unexplained == {}
    assert_quiet(server)


@pytest.mark.parametrize(
    "store", ["database", pytest.param("redis", marks=pytest.mark.service("redis"))]
)
def test_a_killed_lease_runs_out_and_its_redelivery_runs(
    start: Start,
    store: str,
    redis_url: str,
    size: Callable[[int, int], int],
    figures: Callable[..., None],
) -> None:
    """Never two at once, each finished once, and no run that no kill explains."""
    server = start(workers=4, STORE=store, REDIS_URL=redis_url, LEASE=LEASE, WAIT=0.05)
    killer, sent, tally = kill_while_sending(server, "hammer.leased", size(200, 8))
    runs, cuts, counted = runs_of(server), killer.cuts(), effects()
    figures(
        store=store,
        events=len(sent),
        kills_inside=killer.inside,
        kills=len(killer.dead),
        runs=runs.total(),
        effects=counted.total(),
        **tally.figures(),
    )
    assert_all_accepted(tally, sent)
    assert_finished({event.id for event in sent})
    assert server.journal.lines("overlap") == []
    assert set(counted) == {event.id for event in sent}
    assert {key: times for key, times in runs.items() if times > 1 + cuts[key]} == {}
    assert {key: times for key, times in counted.items() if times > runs[key]} == {}
    assert_quiet(server)
