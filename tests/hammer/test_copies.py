"""Shuffled copies of many events over many connections: as many effects as events."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import SQLITE_DEFAULT, Start
from .ledger_state import assert_all_accepted, assert_exactly_once, assert_quiet
from .provider import Campaign, events, shuffled


def test_five_copies_of_each_event_have_one_effect(
    start: Start, size: Callable[[int, int], int], figures: Callable[..., None]
) -> None:
    """WB-001, WB-002, WB-003, WB-075: the five providers mixed, 32 connections."""
    server = start(workers=4)
    sent = events(size(2000, 100))
    tally = Campaign(server.port, shuffled(sent, 5)).run()
    figures(events=len(sent), **tally.figures())
    assert_all_accepted(tally, sent)
    assert_exactly_once(sent)
    assert all(times == 5 for times in tally.accepted.values())
    assert_quiet(server)


@pytest.mark.only_on("sqlite")
def test_sqlite_as_startproject_leaves_it(
    start: Start, size: Callable[[int, int], int], figures: Callable[..., None]
) -> None:
    """No WAL, deferred transactions, five seconds of patience: slow, and still no 500."""
    server = start(workers=4, sqlite=SQLITE_DEFAULT)
    sent = events(size(500, 40), plan={"after": 2})
    tally = Campaign(server.port, shuffled(sent, 5)).run()
    figures(events=len(sent), **tally.figures())
    assert_all_accepted(tally, sent)
    assert_exactly_once(sent)
    assert_quiet(server)
