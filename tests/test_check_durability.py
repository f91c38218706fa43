"""The check that an acknowledged event outlives a crash of the database (webhooks.W041)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.checks import CheckMessage, run_checks
from django.db import connection

from django_webhook_idempotency import checks
from django_webhook_idempotency.checks import environment

pytestmark = pytest.mark.django_db(transaction=True)


def found() -> list[CheckMessage]:
    said = run_checks(tags=[checks.TAG], databases=["default"])
    return [each for each in said if each.id == "webhooks.W041"]


def ask(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return str(cursor.fetchone()[0]) if cursor.description else ""


@pytest.fixture
def new_connection() -> Iterator[None]:
    """Let the next test have a connection that nobody changed."""
    yield
    connection.close()


@pytest.mark.only_on("postgresql")
def test_postgresql(new_connection: None) -> None:
    ask("SET synchronous_commit TO off")
    (message,) = found()
    assert message.msg.startswith("synchronous_commit is off on 'default'")
    for value in ("on", "local", "remote_write"):
        ask(f"SET synchronous_commit TO {value}")
        assert found() == []


@pytest.mark.only_on("mysql")
def test_mariadb(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "innodb_flush_log_at_trx_commit"
    assert len(found()) == (ask(f"SELECT @@{name}") != "1")
    # The server's own, which only its administrator may change.
    for value, said in (("0", 1), ("1", 0), ("2", 1), ("3", 0)):
        _, _, lax = environment._DURABILITY["mysql"][0]
        answer = [(name, f"SELECT {value}", lax)]
        monkeypatch.setitem(environment._DURABILITY, "mysql", answer)
        assert len(found()) == said


@pytest.mark.only_on("sqlite")
def test_sqlite(new_connection: None) -> None:
    ask("PRAGMA synchronous=OFF")
    (message,) = found()
    assert message.msg.startswith("PRAGMA synchronous is 0 on 'default'")
    for value in ("NORMAL", "FULL"):
        ask(f"PRAGMA synchronous={value}")
        assert found() == []


def test_asks_no_database_that_it_was_not_told_to_ask(django_assert_num_queries) -> None:
    with django_assert_num_queries(0):
        said = run_checks(tags=[checks.TAG], databases=[])
    assert [each for each in said if each.id == "webhooks.W041"] == []
