"""A CSV file of processed events."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import TextIO

from .rows import AdoptError, Bad, BadRow, Row, Scopes, id_of, moment_of, text_of
from .tables import Columns

#: Characters that a cell may have.
LONGEST = 64 * 1024 * 1024


@dataclass(frozen=True)
class Sheet:
    """An open CSV file in UTF-8, whose first line names the columns."""

    file: TextIO = field(repr=False)
    columns: Columns = field(default_factory=Columns)
    scopes: Scopes = field(default_factory=Scopes)
    zone: tzinfo = UTC
    delimiter: str = ","

    def rows(self) -> Iterator[Row | Bad]:
        """Every row, in the order of the file. Raises AdoptError."""
        # The limit is that of the process; a column that is not even read may hold whole bodies.
        before = csv.field_size_limit()
        csv.field_size_limit(max(before, LONGEST))
        try:
            yield from self._rows()
        finally:
            csv.field_size_limit(before)

    def _rows(self) -> Iterator[Row | Bad]:
        reader = csv.reader(self.file, delimiter=self.delimiter, strict=True)
        try:
            # What some programs put before the first name says only that this is UTF-8.
            header = [name.strip().lstrip("\ufeff") for name in next(reader, [])]
            where = self._places(header)
            for cells in reader:
                if cells:
                    yield self._row(reader.line_num, cells, len(header), where)
        except csv.Error as error:
            raise AdoptError(f"Line {reader.line_num} is no CSV: {error}.") from error
        except UnicodeDecodeError as error:
            raise AdoptError(f"After line {reader.line_num} it is not UTF-8.") from error

    def _places(self, header: Sequence[str]) -> dict[str, int]:
        """The place of each column that is read. Raises AdoptError for one that is not there."""
        columns = self.columns
        named = [columns.id, columns.type, columns.time, *self.scopes.columns]
        for name in filter(None, named):
            if header.count(name) != 1:
                times = "twice" if name in header else "not"
                raise AdoptError(
                    f"Column {name!r} is {times} in the first line. Name the columns with "
                    "--id-column, --type-column (empty for none), --time-column (empty for none), "
                    "--scope-column and --url-scope-column."
                )
        return {name: header.index(name) for name in filter(None, named)}

    def _row(self, line: int, cells: Sequence[str], width: int, where: dict[str, int]) -> Row | Bad:
        place = f"line {line}"
        columns = self.columns

        def read(name: str) -> str:
            return cells[where[name]] if name else ""

        try:
            if len(cells) != width:
                raise BadRow(f"too {'few' if len(cells) < width else 'many'} cells")
            scope, url_scope = self.scopes.of(read)
            return Row(
                place,
                id_of(read(columns.id)),
                text_of(read(columns.type), "type"),
                moment_of(read(columns.time), self.zone),
                scope,
                url_scope,
            )
        except BadRow as bad:
            return Bad(place, str(bad))
