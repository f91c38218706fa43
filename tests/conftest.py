"""Fixtures of every test, and the skips of what needs an absent service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import pytest
from django.conf import settings
from django.core.management.color import Style
from django.db import connection
from django.db.backends.postgresql.operations import DatabaseOperations

from django_webhook_idempotency.dispatch.deliveries import strangers
from django_webhook_idempotency.dispatch.quarantine import full_buckets
from django_webhook_idempotency.dispatch.secret_uses import notes
from django_webhook_idempotency.dispatch.silence import looks
from django_webhook_idempotency.handlers import Handler, registry
from tests import services


def pytest_sessionstart() -> None:
    """End the run at once when its database is away and required."""
    if settings.DATABASE_PROBLEM and services.required():
        pytest.exit(settings.DATABASE_PROBLEM, returncode=1)


#: Folders of tests that ask nothing of a database.
WITHOUT_DATABASE = {"providers", "signatures"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this database cannot show, and what SQLite's run has shown already."""
    vendor = connection.vendor
    left_out = []
    for item in items:
        only_on = item.get_closest_marker("only_on")
        once = item.get_closest_marker("once") or item.path.parent.name in WITHOUT_DATABASE
        if (only_on and vendor not in only_on.args) or (once and vendor != "sqlite"):
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip every test of a run whose database is away.

    Also make `@pytest.mark.service("redis")` skip, or fail, without a Redis.
    """
    if settings.DATABASE_PROBLEM:
        pytest.skip(settings.DATABASE_PROBLEM)
    for marker in item.iter_markers("service"):
        for name in marker.args:
            services.require(name)


def sql_delete(
    self: DatabaseOperations,
    style: Style,
    tables: Sequence[str],
    *,
    reset_sequences: bool = False,
    allow_cascade: bool = False,
) -> list[str]:
    """Return the statements that empty `tables`, whose foreign keys are checked at the commit."""
    if reset_sequences or allow_cascade:
        return sql_truncate(
            self, style, tables, reset_sequences=reset_sequences, allow_cascade=allow_cascade
        )
    return [f"DELETE FROM {self.quote_name(table)}" for table in tables]


sql_truncate = DatabaseOperations.sql_flush
# PostgreSQL makes new files for each table and index that it truncates: a second for each test
# that commits, where deleting a few rows takes milliseconds.
DatabaseOperations.sql_flush = sql_delete  # type: ignore[assignment]


@pytest.fixture(scope="session")
def requires_service() -> Callable[[str], None]:
    """Give a function that skips, or fails, the test when the service it names is absent."""
    return services.require


@pytest.fixture
def database_url(transactional_db: None) -> str:
    """Give the URL of this run's test database, for a server in a process of its own."""
    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "sqlite":
        return f"sqlite:///{name}"
    return urlunsplit(urlsplit(settings.DATABASE_URL)._replace(path=f"/{quote(name)}"))


class Handlers:
    """Registers handlers for one test."""

    def __init__(self) -> None:
        self.added: list[Callable[..., Any]] = []

    def add(
        self,
        function: Callable[..., Any],
        provider: str = "*",
        pattern: str = "*",
        *,
        atomic: bool = True,
        name: str = "",
        **more: Any,
    ) -> None:
        """Register a function as `@webhook_handler` does."""
        named = name or f"test.handler{len(self.added) + 1}"
        registry.add(Handler(function, provider, pattern, atomic, named, **more))
        self.added.append(function)


@pytest.fixture
def handlers() -> Iterator[Handlers]:
    """Register handlers that are forgotten after the test."""
    adder = Handlers()
    yield adder
    for function in adder.added:
        registry.remove(function)


@pytest.fixture(autouse=True)
def fresh_process() -> None:
    """Let each test write what a fresh process may: what it remembers is of rows that are gone."""
    strangers.forget()
    full_buckets.forget()
    notes.forget()
    looks.forget()
