"""An event's place in the sequence of an ordering key: taken, left, and passed on to the next.

Two tables keep it. The turns say which events of a key are not done yet, and only the oldest of
them may run. An older event may become visible after a younger one, so the key's own row names the
event that runs: whoever comes while that one is in a worker's hands has to wait.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from django.db import DatabaseError, connections
from django.db.models import F, QuerySet
from django.utils import timezone

from .. import ledger
from ..enums import EventStatus
from ..exceptions import OrderingError, Superseded
from ..handlers import Handler
from ..inserts import is_locked
from ..models import HandlerTurn, OrderingKey, WebhookEvent
from .readings import read
from .runs import patience, retried
from .versions import Version

#: Seconds that a worker waits for the row of a key that somebody locks. Other workers do so for a
#: moment, and a request for as long as its handlers run.
LOCK_WAIT = 0.5
#: How long an event waits for its turn if nobody calls it: as long as it has been there already,
#: and this for each one ahead of it, so that a long queue does not keep the workers busy looking.
SHORTEST_WAIT, LONGEST_WAIT = timedelta(seconds=5), timedelta(minutes=5)
WAIT_FOR_EACH = timedelta(seconds=1)


@dataclass
class Place:
    """The place of one event in the sequence of one key, for one handler."""

    event: WebhookEvent
    handler: Handler
    key: str
    using: str
    #: Whether the turn is marked as waiting.
    waiting: bool = False
    #: Whether the key's row was locked all the time, so that nobody will call.
    locked: bool = False
    #: Whether a claim of this event that was lost had the place before.
    gave_way: bool = False
    #: How many came before, at the last look.
    ahead: int = 0
    version: Version | None = None
    #: What the key's row says of the newest version applied, and of who runs.
    applied: str = ""
    holder: int | None = None

    @property
    def turn(self) -> QuerySet[HandlerTurn]:
        """The row of the turn."""
        return HandlerTurn.objects.using(self.using).filter(key=self.key, event=self.event)

    @property
    def row(self) -> QuerySet[OrderingKey]:
        """The row of the key."""
        return OrderingKey.objects.using(self.using).filter(key=self.key)

    @property
    def is_free(self) -> bool:
        """Whether no other event stands in the way now."""
        if self.count_ahead():
            return False
        return not self._is_running(self.row.values_list("holder", flat=True).first())

    def take(self) -> bool:
        """Become the event that runs, in a short transaction; False if it has to wait."""
        for _ in patience(LOCK_WAIT):
            try:
                taken = retried(self._take)
                if taken is None:
                    create([self], self.using)
                    taken = retried(self._take)
            except DatabaseError as error:
                if not is_locked(error):
                    raise
                continue
            if taken is not None:
                return taken
        self.locked = True
        self.turn.update(waiting=True)
        return False

    def _take(self) -> bool | None:
        with ledger.own_transaction(self.using):
            if not self.lock():
                return None
            # Each a statement of its own, after the lock: what was committed before it is seen.
            if self.count_ahead() or self.is_held:
                self.turn.update(waiting=True)
                if self.holder == self.event.pk:
                    self.row.update(holder=None)
                    self.gave_way = True
                return False
            if self.waiting:
                self.turn.update(waiting=False, others_at=None)
            self.row.update(holder=self.event.pk, updated_at=timezone.now())
        return True

    def count_ahead(self) -> int:
        """Count the events of the key that are not done yet and came before, as far as matters."""
        turns = undone(self.key, self.using)
        if self.event.pk is not None:
            turns = turns.filter(event__lt=self.event.pk)
        self.ahead = turns.order_by()[: LONGEST_WAIT // WAIT_FOR_EACH].count()
        return self.ahead

    @property
    def wait(self) -> timedelta:
        """How long the event waits for this turn before it looks by itself."""
        age = timezone.now() - self.event.received_at
        return min(max(age, SHORTEST_WAIT, self.ahead * WAIT_FOR_EACH), LONGEST_WAIT)

    def _is_running(self, holder: int | None) -> bool:
        """Whether the key's holder is another event, in a worker's hands.

        Also if its lease has run out: then the next worker claims it with a fresh token, so that
        the one which stalled can no longer finish, and only after that it gives way.
        """
        if holder is None or holder == self.event.pk:
            return False
        events = WebhookEvent.objects.using(self.using)
        return events.filter(pk=holder, status=EventStatus.PROCESSING).exists()

    def lock(self) -> bool:
        """Lock the key's row until the transaction ends; False if it has none.

        Raises the database's error if somebody else has locked it.
        """
        row = lock_key(self.key, self.using)
        if row is None:
            return False
        self.applied, self.holder = row.version, row.holder
        return True

    @property
    def is_held(self) -> bool:
        """Whether another event has the locked key, in a worker's hands."""
        return self._is_running(self.holder)

    def compare(self) -> None:
        """Read the event's version. Raises Superseded if a newer one was applied, OrderingError."""
        if self.handler.version is None:
            return
        try:
            self.version = Version.of(read(self.event, self.handler.version))
            applied = Version.load(self.applied)
            superseded = applied is not None and self.version.is_older_than(applied)
        except OrderingError as error:
            raise OrderingError(f"{self.handler.name}: {error}") from None
        if superseded:
            raise Superseded("A newer event of its ordering key was applied already.")

    def leave(self, *, done: bool, applied: bool) -> None:
        """Let the next one in, inside of the transaction that says how the run ended.

        `done` is whether the handler is through with the event, `applied` whether it succeeded.
        """
        changes = self._new_version if applied else {}
        self.row.update(holder=None, updated_at=timezone.now(), **changes)
        if done:
            self.turn._raw_delete(self.using)

    def write_version(self) -> None:
        """Note the version that was applied, in the transaction that locks the key's row."""
        self.row.update(updated_at=timezone.now(), **self._new_version)

    @property
    def _new_version(self) -> dict[str, str]:
        return {} if self.version is None else {"version": self.version.stored}


def undone(key: str, using: str) -> QuerySet[HandlerTurn]:
    """The turns of a key that somebody may still take; a finished or dead event blocks nobody."""
    return HandlerTurn.objects.using(using).filter(key=key, event__lane__isnull=False)


def lock_key(key: str, using: str) -> OrderingKey | None:
    """Lock the row of a key until the transaction ends, without waiting; None if there is none.

    Raises the database's error if somebody else has locked it.
    """
    keys = OrderingKey.objects.using(using).filter(key=key)
    if not connections[using].features.has_select_for_update:
        # SQLite has one lock, for writing; the empty update takes it before the row is read.
        keys.update(updated_at=F("updated_at"))
        return keys.first()
    return keys.select_for_update(nowait=True).first()


def create(places: Collection[Place], using: str) -> None:
    """Insert the rows of keys that have none yet; in a handler's transaction others would wait."""
    rows = [OrderingKey(key=place.key, provider=place.event.provider) for place in places]
    OrderingKey.objects.using(using).bulk_create(rows, ignore_conflicts=True)


def line_up(
    event: WebhookEvent, keys: Collection[str], using: str, *, waiting: bool = False
) -> None:
    """Give an event its turns. One that it has already stays as it is."""
    if keys:
        turns = [HandlerTurn(event=event, key=key, waiting=waiting) for key in keys]
        HandlerTurn.objects.using(using).bulk_create(turns, ignore_conflicts=True)


def end_rest(event: WebhookEvent, using: str) -> None:
    """Let every handler of an event run the next time, also one whose retry is not due yet."""
    turns = HandlerTurn.objects.using(using).filter(event=event, others_at__isnull=False)
    turns.update(others_at=None)
