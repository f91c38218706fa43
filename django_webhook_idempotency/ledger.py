"""Policy: what a delivery means for the event it carries.

New, a duplicate, still running, or unfinished and ours to run: decided here from one insert or
one locked row, never from a check that something else could overtake.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, connections, router, transaction
from django.db.models import F
from django.utils import timezone

from .enums import EventStatus
from .exceptions import InsideTransaction, LeaseLost
from .inserts import is_locked
from .models import MAX_ERROR, WebhookEvent, class_name, displayable, text_of

#: PostgreSQL: serialization failure, deadlock.
_TRANSIENT_SQLSTATES = frozenset({"40001", "40P01"})
#: MySQL and MariaDB: deadlock, record changed since last read.
_TRANSIENT_NUMBERS = frozenset({1213, 1020})
#: MySQL and MariaDB: those, and a full lock table. After one of these no statement of the
#: transaction is left, and the next begins a new one without a word.
_UNDOING_NUMBERS = _TRANSIENT_NUMBERS | {1206}
_LOCK_WAIT_TIMEOUT = 1205
#: A finish gives the lease up, unless it says otherwise.
UNLEASED: Mapping[str, Any] = {"lease_token": "", "lease_expires_at": None}
#: How far `is_transient` follows the causes of an error.
_MAX_CAUSES = 10


def alias() -> str:
    """The database that the ledger is written to, as the project's routers say."""
    return router.db_for_write(WebhookEvent)


def is_transient(error: BaseException | None) -> bool:
    """Whether the database undid the transaction for a reason that a second try may not meet.

    Looks through the exceptions that a handler may have wrapped around it.
    """
    for _ in range(_MAX_CAUSES):
        if error is None:
            return False
        if isinstance(error, DatabaseError):
            if getattr(error.__cause__, "sqlstate", None) in _TRANSIENT_SQLSTATES:
                return True
            if error.args and error.args[0] in _TRANSIENT_NUMBERS:
                return True
        error = error.__cause__ or error.__context__
    return False


def is_passing(error: BaseException) -> bool:
    """Whether another transaction came in the way, so that a second try may succeed."""
    return is_transient(error) or is_locked(error)


def require_no_transaction(using: str) -> None:
    """Raise InsideTransaction where somebody opened a transaction around the receiver.

    The ones that Django's test cases open don't count.
    """
    connection = connections[using]
    if not connection.in_atomic_block and not connection.get_autocommit():
        raise InsideTransaction(
            "Autocommit is off, so that nothing the webhook receiver writes would be committed. "
            f"Leave DATABASES[{using!r}]['AUTOCOMMIT'] on, and don't call set_autocommit(False) "
            "around the receiver."
        )
    for block in connection.atomic_blocks:
        if not getattr(block, "_from_testcase", False):
            raise InsideTransaction(
                "A transaction is open around the webhook receiver, which has to commit by "
                "itself. Put @idempotent_webhook outermost, above api_view and every other "
                "decorator, or take the view out of ATOMIC_REQUESTS with "
                "@transaction.non_atomic_requests."
            )


@contextmanager
def own_transaction(using: str) -> Iterator[None]:
    """A transaction that is the outermost, so that its end is a commit.

    Raises InsideTransaction where somebody opened one around it.
    """
    require_no_transaction(using)
    with transaction.atomic(using=using, durable=True):
        yield


@contextmanager
def unbroken(using: str) -> Iterator[None]:
    """Run somebody else's code in our transaction; raise if it can no longer be committed whole.

    The code may have caught the error that says so. MySQL and MariaDB undo everything on a
    deadlock and carry on in a new transaction, which would commit what came after it without the
    claim. Django ends a transaction that is marked for rollback without an exception, and a
    savepoint too.
    """
    undone: list[DatabaseError] = []
    timeouts: list[DatabaseError] = []

    def watch(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        try:
            return execute(sql, params, many, context)
        except DatabaseError as error:
            number = error.args[0] if error.args else None
            if number in _UNDOING_NUMBERS:
                undone.append(error)
            elif number == _LOCK_WAIT_TIMEOUT:
                timeouts.append(error)
            raise

    connection = connections[using]
    with connection.execute_wrapper(watch):
        yield
    if timeouts and _undone_by_timeouts(using):
        undone += timeouts
    if undone:
        raise undone[0]
    if connection.needs_rollback:
        raise transaction.TransactionManagementError(
            "The handler went on after a database error, closed the connection or asked for a "
            "rollback, so what it wrote can't be committed. Put transaction.atomic() around the "
            "statements whose errors it catches."
        )


def _undone_by_timeouts(using: str) -> bool:
    """Whether this MySQL or MariaDB undoes a whole transaction for one lock wait that timed out."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT @@innodb_rollback_on_timeout")
        return bool(cursor.fetchone()[0])


def require_alive(using: str) -> None:
    """Raise if the transaction is aborted: PostgreSQL would answer COMMIT with a rollback."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT 1")


@contextmanager
def bounded_lock_wait(using: str, seconds: float) -> Iterator[None]:
    """Let SQLite wait no longer than `seconds` for its one lock, which a handler may be holding.

    The other databases are asked not to wait at all, statement by statement.
    """
    connection = connections[using]
    if connection.vendor != "sqlite":
        yield
        return
    connection.ensure_connection()
    raw: Any = connection.connection
    (before,) = raw.execute("PRAGMA busy_timeout").fetchone()
    raw.execute(f"PRAGMA busy_timeout = {min(before, int(seconds * 1000))}")
    try:
        yield
    finally:
        raw.execute(f"PRAGMA busy_timeout = {before}")


def drop_broken_connection(using: str) -> None:
    """After an error, close a connection that the database has given up; the next use opens one."""
    connection = connections[using]
    if connection.in_atomic_block or connection.connection is None:
        return
    if connection.errors_occurred and not connection.is_usable():
        connection.close()


def was_lost(using: str, before: object) -> bool:
    """After an error: whether the connection that there was `before` is broken, and closed now.

    Django itself opens a new one when a transaction ends with a lost connection.
    """
    drop_broken_connection(using)
    now = connections[using].connection
    return now is None or now is not before


def new_token() -> str:
    """A fresh fencing token."""
    return secrets.token_hex(16)


def find(event: WebhookEvent, *, with_response: bool = False) -> WebhookEvent | None:
    """The stored event that a delivery is about, without its body."""
    events = WebhookEvent.objects.using(alias())
    events = events.defer("body") if with_response else events.defer("body", "response_body")
    matches = events.same(event.dedupe_key, event.secondary_key)
    # Both keys may match different rows; the one with the same id is the event itself.
    found = list(matches[:2])
    return min(found, key=lambda match: match.dedupe_key != event.dedupe_key, default=None)


def take(stored: WebhookEvent, token: str, lease: timedelta, *, exclusive: bool) -> bool:
    """Claim an unfinished event under a lease; False if it is finished or somebody holds it.

    With `exclusive`, the store has already decided and the row's own lease doesn't count.
    """
    now = timezone.now()
    events = WebhookEvent.objects.using(alias()).filter(pk=stored.pk)
    events = events.unfinished() if exclusive else events.free(now)
    taken = events.update(attempts=F("attempts") + 1, **leased(token, lease, now))
    return taken == 1


def leased(token: str, lease: timedelta, now: datetime) -> dict[str, Any]:
    """The columns of an event that somebody runs under a lease.

    Whoever waits for its turn may look again when the lease has run out.
    """
    return {
        "status": EventStatus.PROCESSING,
        "lease_token": token,
        "lease_expires_at": now + lease,
        "next_attempt_at": now + lease,
    }


def finish(event: WebhookEvent, token: str = "", **changes: Any) -> None:
    """Write what became of a claimed event: the one conditional update of each transition.

    `token` is the lease's; without one, the row must be locked by the caller's transaction.
    Raises LeaseLost if the claim is somebody else's by now.
    """
    write_finish(event, token, changes)
    adopt(event, changes)


def write_finish(event: WebhookEvent, token: str, changes: Mapping[str, Any]) -> None:
    """As `finish`, and leave the object as it is: the transaction may not be committed yet."""
    events = WebhookEvent.objects.using(alias())
    mine = events.held_by(event.pk, token) if token else events.filter(pk=event.pk)
    if mine.update(**{**UNLEASED, **changes}) != 1:
        raise LeaseLost(f"The lease on {event.provider} event {event.pk} ran out.")


def adopt(event: WebhookEvent, changes: Mapping[str, Any]) -> None:
    """Let the object say what its row says after a finish."""
    for name, value in {**UNLEASED, **changes}.items():
        if name != "body":  # who is still at work with the event reads its body
            setattr(event, name, value)


def error_text(error: BaseException) -> str:
    """One line on an error, fit to be stored."""
    return displayable(f"{class_name(error)}: {text_of(error)}", MAX_ERROR)
