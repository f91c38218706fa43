"""Servers on this run's database, the sizes, and where the figures go."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.services import lock_file, own_redis

from .server import Server, serve
from .sqlite import SQLITE, leave_wal
from .workers import Work, crew

#: WEBHOOK_HAMMER=full: the sizes of the closing notes. Otherwise what `make test` can afford.
FULL = os.environ.get("WEBHOOK_HAMMER", "") == "full"
#: For what an everyday run can leave out, since its sibling shows nearly the same.
only_when_full = pytest.mark.skipif(not FULL, reason="only with WEBHOOK_HAMMER=full")
#: A file to which each test adds a line of JSON with what it counted.
REPORT = os.environ.get("WEBHOOK_HAMMER_REPORT", "")

#: SQLite as `startproject` leaves it.
SQLITE_DEFAULT: dict[str, Any] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what stands in this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("hammer")


@pytest.fixture
def size() -> Callable[[int, int], int]:
    """Give the number for a full run or the one for an everyday run."""
    return lambda full, everyday: full if FULL else everyday


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Give a function that keeps what a test counted."""

    def keep(**counted: Any) -> None:
        line = {"database": connection.vendor, "test": request.node.name, **counted}
        request.node.add_report_section("call", "figures", json.dumps(line))
        if REPORT:
            with open(REPORT, "a") as file:
                file.write(json.dumps(line) + "\n")

    return keep


@pytest.fixture
def redis_url() -> str:
    """Give a Redis database that only these tests use: some of them empty it."""
    return own_redis()[0]


@pytest.fixture(autouse=True)
def one_at_a_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let no two runs side by side start servers at once: both would be too slow for their waits.

    Before any other fixture, so that nothing times out while it waits for its turn.
    """
    if "database_url" not in request.fixturenames:
        yield
        return
    with lock_file("hammer") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


Start = Callable[..., Server]


@pytest.fixture
def processes_url(database_url: str) -> Iterator[str]:
    """Give the URL of this run's database to processes that have ended before the next test."""
    yield database_url
    leave_wal()


@pytest.fixture
def start(tmp_path: Path, processes_url: str) -> Iterator[Start]:
    """Give a function that starts a server on this run's database.

    All servers of a test share one journal, one set of lock files and one count of failures.
    """
    with ExitStack() as stack:
        number = 0

        def start(
            workers: int = 4,
            *,
            url: str = "",
            database: dict[str, Any] | None = None,
            sqlite: dict[str, Any] | None = None,
            django: dict[str, Any] | None = None,
            **webhook: Any,
        ) -> Server:
            nonlocal number
            number += 1
            changes: dict[str, Any] = {"CONN_MAX_AGE": 60, **(database or {})}
            if connection.vendor == "sqlite":
                changes["OPTIONS"] = SQLITE if sqlite is None else sqlite
            context: AbstractContextManager[Server] = serve(
                tmp_path,
                tmp_path / f"log-{number}",
                url or processes_url,
                workers=workers,
                settings={
                    "DATABASE": changes,
                    "WEBHOOK_IDEMPOTENCY": webhook,
                    "DJANGO": django or {},
                },
            )
            return stack.enter_context(context)

        yield start


@pytest.fixture
def work(tmp_path: Path, processes_url: str) -> Iterator[Work]:
    """Give a function that starts a `webhook_worker`."""
    with crew(tmp_path, processes_url) as work:
        yield work
