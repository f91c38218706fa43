"""The statements that decide, and the filters that read.

`insert_once` is the only raw SQL on the receiving path: it is what makes two copies of an event
one, so it asks each database in that database's own words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, IntegrityError, OperationalError, connections, models
from django.db.models import Q

from .enums import FINISHED, UNFINISHED, EventStatus
from .exceptions import StoreUnavailable

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from .models import WebhookDelivery, WebhookEvent

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


class WebhookEventQuerySet(models.QuerySet["WebhookEvent"]):
    """Events by what can be done with them."""

    def finished(self) -> WebhookEventQuerySet:
        """Events whose copies are duplicates."""
        return self.filter(status__in=FINISHED)

    def unfinished(self) -> WebhookEventQuerySet:
        """Events that may still run."""
        return self.filter(status__in=UNFINISHED)

    def free(self, now: datetime) -> WebhookEventQuerySet:
        """Unfinished events that nobody holds a live lease on."""
        return self.unfinished().filter(
            ~Q(status=EventStatus.PROCESSING)
            | Q(lease_expires_at__isnull=True)
            | Q(lease_expires_at__lte=now)
        )

    def held_by(self, pk: int, token: str) -> WebhookEventQuerySet:
        """The event `pk` if its claim still carries `token`: the fence before each finish."""
        return self.filter(pk=pk, lease_token=token, status=EventStatus.PROCESSING)

    def same(self, dedupe_key: str, secondary_key: str | None) -> WebhookEventQuerySet:
        """The event that a delivery is about."""
        matches = Q(dedupe_key=dedupe_key)
        if secondary_key:
            matches |= Q(secondary_key=secondary_key)
        return self.filter(matches)

    def lock(self, pk: int) -> WebhookEvent | None:
        """Lock an event until the transaction ends.

        Returns None if another transaction holds it or it is gone. Never waits for the holder.
        """
        connection = connections[self.db]
        if not connection.features.has_select_for_update:
            # SQLite has one lock, for writing; the empty update takes it before the row is read.
            self.filter(pk=pk).update(attempts=models.F("attempts"))
            return self.filter(pk=pk).first()
        locked = self.select_for_update(nowait=True)
        if connection.features.has_select_for_no_key_update:
            locked = self.select_for_update(nowait=True, no_key=True)
        try:
            return locked.filter(pk=pk).first()
        except DatabaseError as error:
            if is_locked(error):
                return None
            raise

    def insert_once(self, event: WebhookEvent, *, find_twin: bool = False) -> Inserted:
        """Insert `event` unless its key is taken, in one statement that doesn't wait.

        With `find_twin`, the same statement looks for an older event with the same content under
        another id.

        Only a conflict on the unique keys is silent; every other error is raised. A row that
        somebody inserts in a transaction that is still open counts as taken.
        """
        connection = connections[self.db]
        fields = [field for field in self.model._meta.concrete_fields if not field.primary_key]
        values = [
            field.get_db_prep_save(getattr(event, field.attname), connection) for field in fields
        ]
        names = ", ".join(connection.ops.quote_name(field.column or "") for field in fields)
        insert = _INSERTS.get(connection.vendor, _insert_nowhere)
        try:
            inserted = insert(connection, names, values, event, find_twin)
        except DatabaseError as error:
            if not is_locked(error):
                raise
            inserted = Inserted()
        if inserted.won:
            event.pk = inserted.pk
            event._state.adding = False
            event._state.db = self.db
        return inserted


def _returning(event: WebhookEvent, find_twin: bool) -> tuple[str, list[Any]]:
    """The RETURNING clause: the new id and, when asked, an older event with the same content."""
    if not find_twin or not event.content_key:
        return " RETURNING id, NULL", []
    table = event._meta.db_table
    return (
        f" RETURNING id, (SELECT MIN(twin.id) FROM {table} twin"  # noqa: S608
        " WHERE twin.content_key = %s AND twin.event_id <> %s)",
        [event.content_key, event.event_id],
    )


def _execute(connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any]) -> Inserted:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        row: tuple[int, int | None] | None = cursor.fetchone()
    return Inserted(*row) if row else Inserted()


def _lock_number(key: str) -> int:
    """A key's digest as the signed 64-bit number that names its lock."""
    return int.from_bytes(bytes.fromhex(key[:16]), "big", signed=True)


def _insert_postgresql(
    connection: BaseDatabaseWrapper,
    names: str,
    values: list[Any],
    event: WebhookEvent,
    find_twin: bool,
) -> Inserted:
    # ON CONFLICT alone would wait, without bound, for a transaction that is inserting the same
    # key. The advisory lock is held until that transaction ends, and is only ever tried here, so
    # a copy learns at once that somebody is at work. No setting leaks into the handler.
    returning, extra = _returning(event, find_twin)
    marks = ", ".join(["%s"] * len(values))
    numbers = [_lock_number(key) for key in (event.dedupe_key, event.secondary_key) if key]
    locks = " AND ".join(["pg_try_advisory_xact_lock(%s)"] * len(numbers))
    return _execute(
        connection,
        f"INSERT INTO {event._meta.db_table} ({names}) SELECT {marks}"
        f" WHERE {locks} ON CONFLICT DO NOTHING{returning}",
        [*values, *numbers, *extra],
    )


def _insert_sqlite(
    connection: BaseDatabaseWrapper,
    names: str,
    values: list[Any],
    event: WebhookEvent,
    find_twin: bool,
) -> Inserted:
    # ON CONFLICT and not OR IGNORE, which would swallow NOT NULL and CHECK failures too.
    marks = ", ".join(["%s"] * len(values))
    sql = (
        f"INSERT INTO {event._meta.db_table} ({names}) VALUES ({marks})"  # noqa: S608
        " ON CONFLICT DO NOTHING"
    )
    returning, extra = _returning(event, find_twin)
    return _execute(connection, sql + returning, [*values, *extra])


def _insert_mysql(
    connection: BaseDatabaseWrapper,
    names: str,
    values: list[Any],
    event: WebhookEvent,
    find_twin: bool,
) -> Inserted:
    # A plain INSERT: INSERT IGNORE would truncate in silence, and with the FOUND_ROWS flag that
    # Django sets, ON DUPLICATE KEY UPDATE doesn't tell who won. InnoDB undoes just the statement.
    marks = ", ".join(["%s"] * len(values))
    sql = f"INSERT INTO {event._meta.db_table} ({names}) VALUES ({marks})"  # noqa: S608
    try:
        if connection.features.can_return_columns_from_insert:  # MariaDB
            returning, extra = _returning(event, find_twin)
            no_wait = "SET STATEMENT innodb_lock_wait_timeout=0 FOR "
            return _execute(connection, no_wait + sql + returning, [*values, *extra])
        return _insert_mysql_without_returning(connection, sql, values, event, find_twin)
    except IntegrityError as error:
        if _is_key_conflict(error, event):
            return Inserted()
        raise


def _insert_mysql_without_returning(
    connection: BaseDatabaseWrapper,
    sql: str,
    values: list[Any],
    event: WebhookEvent,
    find_twin: bool,
) -> Inserted:
    twin = None
    with connection.cursor() as cursor:
        # MySQL waits whole seconds, one at the least, and knows no setting for one statement.
        cursor.execute("SET @webhook_lock_wait = @@SESSION.innodb_lock_wait_timeout")
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
        try:
            cursor.execute(sql, values)
            pk = cursor.lastrowid
            if find_twin and event.content_key:
                cursor.execute(
                    f"SELECT MIN(id) FROM {event._meta.db_table}"  # noqa: S608
                    " WHERE content_key = %s AND event_id <> %s",
                    [event.content_key, event.event_id],
                )
                twin = cursor.fetchone()[0]
        finally:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = @webhook_lock_wait")
    return Inserted(pk, twin)


def _is_key_conflict(error: DatabaseError, event: WebhookEvent) -> bool:
    if not error.args or error.args[0] != _MYSQL_DUPLICATE:
        return False
    keys = [constraint.name for constraint in event._meta.constraints]
    return any(key in str(error.args[-1]) for key in keys)


def _insert_nowhere(
    connection: BaseDatabaseWrapper,
    names: str,
    values: list[Any],
    event: WebhookEvent,
    find_twin: bool,
) -> Inserted:
    raise StoreUnavailable(
        f"Database {connection.vendor!r} is not supported. "
        "Route the app's models to PostgreSQL, MariaDB, MySQL or SQLite."
    )


_INSERTS = {
    "postgresql": _insert_postgresql,
    "sqlite": _insert_sqlite,
    "mysql": _insert_mysql,
}


class WebhookDeliveryQuerySet(models.QuerySet["WebhookDelivery"]):
    """Deliveries, and the bound on those that strangers cause."""

    def insert_bounded(self, delivery: WebhookDelivery, limit: int) -> None:
        """Store a delivery that proved nothing, keeping the newest `limit` of its kind.

        The kind is the provider and outcome. With a limit of zero nothing is stored.
        """
        if limit <= 0:
            return
        delivery.save(force_insert=True, using=self.db)
        kind = self.filter(provider=delivery.provider, outcome=delivery.outcome)
        oldest = kind.order_by("-pk").values_list("pk", flat=True)[limit : limit + 1]
        for pk in oldest:
            kind.filter(pk__lte=pk)._raw_delete(self.db)
