"""In a request: the ordering keys of an event, locked as long as its transaction lasts."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import DatabaseError
from django.utils import timezone

from .. import ledger
from ..enums import EventStatus, Outcome
from ..handlers import Handler
from ..inserts import is_locked
from ..models import WebhookEvent
from .calling import call_next
from .places import Place, create
from .readings import key_of
from .work import Result, Work


class KeysMissing(Exception):
    """Some keys have no row yet. It has to be inserted outside of the handlers' transaction."""

    def __init__(self, places: list[Place]) -> None:
        super().__init__()
        self.places = places


class KeyLocks:
    """The keys of one event's handlers. Without any, nothing is done."""

    def __init__(self, using: str) -> None:
        self.using = using
        #: Whether a key was not free at the last try.
        self.busy = False
        self._places: dict[Handler, Place] = {}
        self._unreadable: dict[Handler, Exception] = {}

    def lock(self, event: WebhookEvent, handlers: Iterable[Handler]) -> bool:
        """Lock them all, or say that one is not free: somebody runs another event of it.

        Raises KeysMissing. What reading a key raises, `enter` raises.
        """
        self._places, self._unreadable = {}, {}
        for handler in handlers:
            try:
                key = key_of(event, handler)
            except DatabaseError:
                raise
            except Exception as error:
                self._unreadable[handler] = error
            else:
                if key is not None:
                    self._places[handler] = Place(event, handler, key, self.using)
        try:
            missing = [place for place in self._places.values() if not place.lock()]
        except DatabaseError as error:
            if not is_locked(error):
                raise
            self.busy = True
            return False
        if missing:
            raise KeysMissing(missing)
        self.busy = any(place.is_held for place in self._places.values())
        return not self.busy

    def create(self, missing: KeysMissing) -> None:
        """Insert the rows of missing keys."""
        create(missing.places, self.using)

    def enter(self, handler: Handler) -> None:
        """Raise what keeps a handler from being called: Superseded, or its key can't be read."""
        if handler in self._unreadable:
            raise self._unreadable[handler]
        if handler in self._places:
            self._places[handler].compare()

    def leave(self, handler: Handler) -> None:
        """Write the version that the handler has applied now."""
        if handler in self._places:
            self._places[handler].write_version()

    def pass_on(self) -> None:
        """After the transaction: wake the events that wait for these keys in the queue."""
        for place in self._places.values():
            call_next(place.key, self.using)


def keep(event: WebhookEvent, work: Work) -> Result:
    """Store an event whose key was not free in time: GitHub for one would not send it again.

    It has not run; a redelivery does that, or a worker.
    """
    using = ledger.alias()
    event.status = EventStatus.PENDING
    event.processed_at, event.attempts, event.handled_by = None, 0, ""
    event.lane = work.lane
    event.next_attempt_at = timezone.now() if work.lane is not None else None
    with ledger.own_transaction(using):
        if WebhookEvent.objects.using(using).insert_once(event).won:
            return work.record(Result(Outcome.IN_PROGRESS, event), using)
    return Result(Outcome.IN_PROGRESS)
