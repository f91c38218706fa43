"""Transactions that somebody else's code opened and did not end.

Django would take such a block for its own: the end of ours would release a savepoint and commit
nothing, and the connection would be of no more use to whoever has it next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

#: What a driver of PostgreSQL says of a connection with a transaction; a broken one is in none.
_BEGUN = frozenset({1, 2, 3})


@dataclass(frozen=True)
class Depth:
    """How deep in transactions a connection is."""

    blocks: int = 0
    savepoints: int = 0
    inside: bool = False
    autocommit: bool = True
    begun: bool = False

    @classmethod
    def of(cls, connection: BaseDatabaseWrapper) -> Depth:
        """As it is now."""
        return cls(
            len(connection.atomic_blocks),
            len(connection.savepoint_ids),
            connection.in_atomic_block,
            connection.autocommit or connection.connection is None,
            not connection.in_atomic_block and _has_begun(connection),
        )


@contextmanager
def closed_blocks() -> Iterator[None]:
    """Run somebody else's code, on whatever databases it uses.

    Raises TransactionManagementError if it leaves a transaction open; that is undone.
    """
    before = {each.alias: Depth.of(each) for each in connections.all(initialized_only=True)}
    try:
        yield
    finally:
        left = [
            each.alias
            for each in connections.all(initialized_only=True)
            if _take_back(each, before.get(each.alias, Depth()))
        ]
    if left:
        raise TransactionManagementError(
            f"The handler left a transaction open on {', '.join(map(repr, left))}, and what it "
            "wrote there is undone. Use transaction.atomic() with 'with', and don't switch "
            "autocommit off."
        )


def _take_back(connection: BaseDatabaseWrapper, before: Depth) -> bool:
    """Undo what was opened since; False if there was nothing."""
    now = Depth.of(connection)
    deeper = now.blocks > before.blocks or (now.inside and not before.inside)
    switched_off = before.autocommit and not before.inside and not now.autocommit
    if not (deeper or switched_off or (now.begun and not before.begun)):
        return False
    savepoint = next(iter(connection.savepoint_ids[before.savepoints :]), None)
    del connection.atomic_blocks[before.blocks :]
    del connection.savepoint_ids[before.savepoints :]
    if not before.inside:
        connection.in_atomic_block = connection.needs_rollback = False
        # SQLite's database in memory does not go with its connection, which stays open.
        with suppress(Exception):
            connection.rollback()
            connection.set_autocommit(connection.settings_dict["AUTOCOMMIT"])
        connection.close()
        return True
    connection.needs_rollback = True
    if savepoint is not None:
        try:
            connection.needs_rollback = False
            connection.savepoint_rollback(savepoint)
        except DatabaseError:
            connection.needs_rollback = True
    return True


def _has_begun(connection: BaseDatabaseWrapper) -> bool:
    """Whether the driver knows of a transaction, where Django does not."""
    raw: Any = connection.connection
    if raw is None or not connection.settings_dict["AUTOCOMMIT"]:
        return False
    if connection.vendor == "sqlite":
        return bool(raw.in_transaction)
    return connection.vendor == "postgresql" and raw.info.transaction_status in _BEGUN
