"""Fixtures of every test, and the skips of what needs an absent service."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote, urlsplit, urlunsplit

import pytest
from django.conf import settings
from django.db import connection

from tests import services


def pytest_sessionstart() -> None:
    """End the run at once when its database is away and required."""
    if settings.DATABASE_PROBLEM and services.required():
        pytest.exit(settings.DATABASE_PROBLEM, returncode=1)


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
