"""The insert that makes two copies of an event one, in each database's own words.

This is the only raw SQL on the receiving path. It never waits for somebody who is inserting the
same key in a transaction that is still open, and only a conflict on the unique keys is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, IntegrityError, OperationalError

from .exceptions import StoreUnavailable

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from .models import WebhookEvent

#: MySQL and MariaDB error numbers: duplicate key, lock wait timeout, NOWAIT refused.
_MYSQL_DUPLICATE = 1062
_MYSQL_LOCKED = frozenset({1205, 3572})
#: PostgreSQL: the row is locked and NOWAIT was asked for.
_POSTGRES_LOCKED = "55P03"


@dataclass(frozen=True, slots=True)
class Inserted:
    """The outcome of `insert_once`.

    `pk` is None if the row exists already or somebody is inserting it right now. `twin` is an
    older event with the same content under another id.
    """

    pk: int | None = None
    twin: int | None = None

    @property
    def won(self) -> bool:
        """Whether this call inserted the row."""
        return self.pk is not None


def is_locked(error: BaseException) -> bool:
    """Whether a database refused to wait for a lock that somebody else holds."""
    cause = error.__cause__
    if getattr(cause, "sqlstate", None) == _POSTGRES_LOCKED:
        return True
    number = error.args[0] if error.args else None
    return number in _MYSQL_LOCKED or (
        isinstance(error, OperationalError) and "is locked" in str(number)
    )


def insert_once(
    connection: BaseDatabaseWrapper, event: WebhookEvent, *, find_twin: bool
) -> Inserted:
    """Insert `event` unless its key is taken, in one statement that doesn't wait."""
    fields = [field for field in event._meta.concrete_fields if not field.primary_key]
    values = [field.get_db_prep_save(getattr(event, field.attname), connection) for field in fields]
    names = ", ".join(connection.ops.quote_name(field.column or "") for field in fields)
    insert = Insert(connection, event, names, values, find_twin and bool(event.content_key))
    try:
        return _VENDORS.get(connection.vendor, _nowhere)(insert)
    except DatabaseError as error:
        if is_locked(error):
            return Inserted()
        raise


@dataclass(frozen=True, slots=True)
class Insert:
    """One insert, ready to be said in a database's own words."""

    connection: BaseDatabaseWrapper
    event: WebhookEvent
    names: str
    values: Sequence[Any]
    find_twin: bool

    @property
    def table(self) -> str:
        """The quoted table."""
        return self.connection.ops.quote_name(self.event._meta.db_table)

    @property
    def marks(self) -> str:
        """A placeholder for each value."""
        return ", ".join(["%s"] * len(self.values))

    @property
    def plain(self) -> str:
        """The statement that every database knows."""
        return f"INSERT INTO {self.table} ({self.names}) VALUES ({self.marks})"  # noqa: S608

    @property
    def select_twin(self) -> str:
        """An older event with the same content under another id, by `twin_values`."""
        return (
            f"SELECT MIN(twin.id) FROM {self.table} twin"  # noqa: S608
            " WHERE twin.content_key = %s AND twin.event_id <> %s"
        )

    @property
    def twin_values(self) -> list[Any]:
        """The values of `select_twin`, where it is asked for."""
        return [self.event.content_key, self.event.event_id] if self.find_twin else []

    def run(self, statement: str, *more: Any) -> Inserted:
        """Run a statement whose values are the row's and `more`, returning the new id."""
        twin = f"({self.select_twin})" if self.find_twin else "NULL"
        return self.fetch(f"{statement} RETURNING id, {twin}", *more)

    def fetch(self, statement: str, *more: Any) -> Inserted:
        """Run a statement that gives the new id, if any, and that of an older event or NULL."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement, [*self.values, *more, *self.twin_values])
            row: tuple[int, int | None] | None = cursor.fetchone()
        return Inserted(*row) if row else Inserted()


def _lock_number(key: str) -> int:
    """A key's digest as the signed 64-bit number that names its lock."""
    return int.from_bytes(bytes.fromhex(key[:16]), "big", signed=True)


def _postgresql(insert: Insert) -> Inserted:
    # ON CONFLICT alone would wait, without bound, for a transaction that is inserting the same
    # key. The advisory lock is held until that transaction ends, and is only ever tried here, so
    # a copy learns at once that somebody is at work. No setting leaks into the handler.
    keys = [key for key in (insert.event.dedupe_key, insert.event.secondary_key) if key]
    locks = " AND ".join(["pg_try_advisory_xact_lock(%s)"] * len(keys))
    return insert.run(
        f"INSERT INTO {insert.table} ({insert.names}) SELECT {insert.marks}"
        f" WHERE {locks} ON CONFLICT DO NOTHING",
        *(_lock_number(key) for key in keys),
    )


def _sqlite(insert: Insert) -> Inserted:
    # ON CONFLICT and not OR IGNORE, which would swallow NOT NULL and CHECK failures too.
    return insert.run(f"{insert.plain} ON CONFLICT DO NOTHING")


def _mysql(insert: Insert) -> Inserted:
    # A plain INSERT: INSERT IGNORE would truncate in silence, and with the FOUND_ROWS flag that
    # Django sets, ON DUPLICATE KEY UPDATE doesn't tell who won. InnoDB undoes just the statement.
    try:
        if insert.connection.features.can_return_columns_from_insert:
            return _mariadb(insert)
        return _mysql_without_returning(insert)
    except IntegrityError as error:
        if is_key_conflict(error, insert.event):
            return Inserted()
        raise


def _mariadb(insert: Insert) -> Inserted:
    no_wait = "SET STATEMENT innodb_lock_wait_timeout=0 FOR"
    if not insert.find_twin:
        return insert.run(f"{no_wait} {insert.plain}")
    # Inside of an INSERT the look for a twin would lock the rows that it reads, and from REPEATABLE
    # READ on the gaps between them: a neighbour's insert would count as taken while a handler runs.
    # INSERT ... SELECT would take the table's AUTO-INC lock. A block is one statement all the same.
    return insert.fetch(
        f"BEGIN NOT ATOMIC {no_wait} {insert.plain};"
        f" {no_wait} SELECT LAST_INSERT_ID(), ({insert.select_twin}); END"
    )


def _mysql_without_returning(insert: Insert) -> Inserted:
    twin = None
    with insert.connection.cursor() as cursor:
        # MySQL waits whole seconds, one at the least, and knows no setting for one statement.
        cursor.execute("SET @webhook_lock_wait = @@SESSION.innodb_lock_wait_timeout")
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
        try:
            cursor.execute(insert.plain, insert.values)
            pk = cursor.lastrowid
            if insert.find_twin:
                cursor.execute(insert.select_twin, insert.twin_values)
                (twin,) = cursor.fetchone()
        finally:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = @webhook_lock_wait")
    return Inserted(pk, twin)


def is_key_conflict(error: DatabaseError, event: WebhookEvent) -> bool:
    """Whether MySQL or MariaDB refused a row since one of its keys is taken."""
    if not error.args or error.args[0] != _MYSQL_DUPLICATE:
        return False
    keys = [constraint.name for constraint in event._meta.constraints]
    return any(key in str(error.args[-1]) for key in keys)


def _nowhere(insert: Insert) -> Inserted:
    raise StoreUnavailable(
        f"Database {insert.connection.vendor!r} is not supported. "
        "Route the app's models to PostgreSQL, MariaDB, MySQL or SQLite."
    )


_VENDORS: dict[str, Callable[[Insert], Inserted]] = {
    "postgresql": _postgresql,
    "sqlite": _sqlite,
    "mysql": _mysql,
}
