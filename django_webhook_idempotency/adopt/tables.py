"""A table of processed events in any database that the settings name, walked by its ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

from django.db import DatabaseError, connections

from .rows import AdoptError, Bad, BadRow, Row, Scopes, id_of, moment_of, text_of

#: Rows that one statement reads.
BATCH = 500


@dataclass(frozen=True)
class Columns:
    """Where a row has its id, its type and its time; type and time may be empty: there is none."""

    id: str = "event_id"
    type: str = "event_type"
    time: str = "processed_at"


@dataclass(frozen=True)
class Walk:
    """Reads some columns of a table in the order of one of them, without a cursor to keep open.

    That column should have an index, and its values may repeat.
    """

    using: str
    table: str
    key: str
    columns: Sequence[str]

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Every row by column, except those whose key is NULL. Raises AdoptError."""
        there = columns_of(self.using, self.table)
        missing = [name for name in self.columns if name not in there]
        if missing:
            # SQLite would take the quoted name for a text.
            raise AdoptError(f"Table {self.table!r} has no column {missing[0]!r}.")
        key = _quoted(self.using, self.key)
        where = f"{key} IS NOT NULL"
        last: list[Any] = []
        while True:
            rows = self._read(f"{where} ORDER BY {key} LIMIT {BATCH}", last)
            is_full = len(rows) == BATCH
            if is_full:
                # More rows may share the last key than fitted in: they are read by themselves.
                where, last = f"{key} > %s", [rows[-1][self.key]]
                rows = [row for row in rows if row[self.key] != last[0]]
                rows += self._read(f"{key} = %s", last)
            yield from rows
            if not is_full:
                return

    def nameless(self) -> int:
        """How many rows have a NULL for a key. Raises AdoptError."""
        key = _quoted(self.using, self.key)
        what = f"COUNT(*) FROM {_whole(self.using, self.table)}"
        ((count,),), _ = _select(self.using, what, f"{key} IS NULL")
        return int(count)

    def _read(self, rest: str, values: Sequence[Any]) -> list[Mapping[str, Any]]:
        names = ", ".join(_quoted(self.using, name) for name in self.columns)
        rows, _ = _select(
            self.using, f"{names} FROM {_whole(self.using, self.table)}", rest, values
        )
        return [dict(zip(self.columns, row, strict=True)) for row in rows]


def columns_of(using: str, table: str) -> list[str]:
    """The names of a table's columns. Raises AdoptError."""
    _, names = _select(using, f"* FROM {_whole(using, table)}", "1 = 0")
    return names


def _select(
    using: str, what: str, where: str, values: Sequence[Any] = ()
) -> tuple[list[tuple[Any, ...]], list[str]]:
    """The rows of a statement, and the names of its columns. Raises AdoptError."""
    try:
        with connections[using].cursor() as cursor:
            cursor.execute(f"SELECT {what} WHERE {where}", values)
            return cursor.fetchall(), [column[0] for column in cursor.description]
    except DatabaseError as error:
        raise AdoptError(f"The table cannot be read: {error}") from error


def _whole(using: str, table: str) -> str:
    """A table's quoted name, with its schema if it has one."""
    return ".".join(_quoted(using, part) for part in table.split("."))


def _quoted(using: str, name: str) -> str:
    if not name or '"' in name or "`" in name or "\x00" in name:
        raise AdoptError(f"{name!r} is no name of a table or a column.")
    return connections[using].ops.quote_name(name)


@dataclass(frozen=True)
class Table:
    """A plain table that remembers what was processed."""

    using: str
    table: str
    columns: Columns = field(default_factory=Columns)
    scopes: Scopes = field(default_factory=Scopes)
    zone: tzinfo = UTC

    def rows(self) -> Iterator[Row | Bad]:
        """Every row, in the order of the ids, those without one last. Raises AdoptError."""
        columns = self.columns
        named = [columns.id, columns.type, columns.time, *self.scopes.columns]
        wanted = list(dict.fromkeys(filter(None, named)))
        walk = Walk(self.using, self.table, columns.id, wanted)
        number = 0
        for number, cells in enumerate(walk.rows(), start=1):
            place = f"row {number}"
            try:
                scope, url_scope = self.scopes.of(cells.__getitem__)
                yield Row(
                    place,
                    id_of(cells[columns.id]),
                    text_of(cells.get(columns.type), "type"),
                    moment_of(cells.get(columns.time), self.zone),
                    scope,
                    url_scope,
                )
            except BadRow as bad:
                yield Bad(place, str(bad))
        for more in range(1, walk.nameless() + 1):
            yield Bad(f"row {number + more}", "blank id")
