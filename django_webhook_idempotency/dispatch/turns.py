"""In a worker: which handlers of an event have their turn, and which wait for an older event."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from django.utils import timezone

from ..handlers import Handler
from ..models import HandlerTurn, WebhookEvent
from .calling import call_next, look_again
from .places import Place, line_up
from .readings import key_of


class Waits(Exception):
    """An older event of the same ordering key comes first; the handler was not called."""


class Turns:
    """The turns of one event's handlers; without ordering keys there is nothing to it."""

    def __init__(self, event: WebhookEvent, using: str, *, matter: bool) -> None:
        """`matter`: whether any handler of the event has an ordering key."""
        self.event = event
        self.using = using
        self.matter = matter
        #: The handlers that were held back.
        self.waiting: dict[Handler, Place] = {}
        #: The place of the handler that runs now.
        self.place: Place | None = None
        self._rows: dict[str, HandlerTurn] = {}
        self._done = False

    def load(self) -> None:
        """Read which turns there are."""
        if self.matter:
            turns = HandlerTurn.objects.using(self.using).filter(event=self.event)
            self._rows = {turn.key: turn for turn in turns}

    def keep(self, handlers: Collection[Handler]) -> None:
        """Let go of the turns that none of these handlers needs: theirs who are through, say."""
        if not self._rows:
            return
        try:
            needed = {key_of(self.event, handler) for handler in handlers}
        except Exception:
            return  # a run will say so
        idle = self._rows.keys() - needed
        if idle:
            turns = HandlerTurn.objects.using(self.using).filter(event=self.event, key__in=idle)
            turns._raw_delete(self.using)
        for key in idle:
            del self._rows[key]
            call_next(key, self.using)

    @property
    def rest_until(self) -> datetime | None:
        """Until when the handlers rest that have failed, if a turn has come before that time."""
        times = [turn.others_at for turn in self._rows.values() if turn.others_at is not None]
        latest = max(times, default=None)
        return latest if latest is not None and latest > timezone.now() else None

    def is_waiting(self, handler: Handler) -> bool:
        """Whether a handler was held back in an earlier run."""
        try:
            key = key_of(self.event, handler)
        except Exception:
            return False  # its run will say so
        turn = self._rows.get(key or "")
        return turn is not None and turn.waiting

    @property
    def wait(self) -> timedelta | None:
        """How long the event waits for the first of the turns that have not come."""
        return min((place.wait for place in self.waiting.values()), default=None)

    def enter(self, handler: Handler) -> None:
        """Take a handler's place, if it has one to take.

        Raises Waits if it is not its turn, Superseded, and what reading key and version raises.
        """
        self.place = None
        key = key_of(self.event, handler)
        if key is None:
            return
        turn = self._rows.get(key)
        if turn is None:
            # It failed in a request, or the handler is newer than the event.
            line_up(self.event, [key], self.using)
            turn = self._rows[key] = HandlerTurn(event=self.event, key=key)
        place = Place(self.event, handler, key, self.using, waiting=turn.waiting)
        if not place.take():
            self.waiting[handler] = place
            if place.gave_way:
                call_next(key, self.using)
            raise Waits
        self.place = place
        place.compare()

    def leave(self, *, done: bool, applied: bool) -> None:
        """Write that the handler has ended, in the transaction that its run is written in."""
        self._done = done
        if self.place is not None:
            self.place.leave(done=done, applied=applied)

    def pass_on(self) -> None:
        """After that transaction: wake who comes next."""
        place, self.place = self.place, None
        if place is None:
            return
        if self._done:
            del self._rows[place.key]
        call_next(place.key, self.using)

    def rest(self, until: datetime | None) -> None:
        """Note until when the others rest, for when a waiting handler's turn comes earlier.

        In the transaction that gives the event back, after its fence.
        """
        turns = HandlerTurn.objects.using(self.using).filter(event=self.event, waiting=True)
        turns.update(others_at=until)

    def look_again(self) -> None:
        """After the event was given back: run it at once if it was called in the meantime."""
        look_again(self.waiting.values())

    def drop(self) -> None:
        """The event is finished or given up: whatever turns are left of it are over."""
        if self._rows:
            HandlerTurn.objects.using(self.using).filter(event=self.event)._raw_delete(self.using)
        for key in self._rows:
            call_next(key, self.using)
