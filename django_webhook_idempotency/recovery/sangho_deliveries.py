"""Read Sangho's deliveries. [U] Their fields are not published: several names are tried for each.

A field counts only if its value is of the kind that its meaning asks for. What cannot be read is
counted, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from django.utils.dateparse import parse_datetime

from ..providers import Identity
from ..providers.incoming import text_at
from .options import is_id

EVENT_IDS = ("event_id", "event.id", "payload.id", "body.id", "request.body.id")
EVENT_TYPES = ("event_type", "event.type", "payload.type", "body.type", "request.body.type")
TIMES = ("created_at", "created", "sent_at", "attempted_at", "delivered_at")
CODES = ("status_code", "response_status", "response_code", "response_status_code", "http_status")
FLAGS = ("success", "succeeded", "delivered")
GOOD_WORDS = frozenset({"delivered", "ok", "success", "succeeded", "successful"})
#: Unix time in seconds is below that until the year 5138; in milliseconds it is above since 1973.
MILLISECONDS = 100_000_000_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One delivery, as far as it can be read."""

    delivery_id: str
    event_id: str
    event_type: str
    at: datetime | None
    accepted: bool

    @classmethod
    def read(cls, row: Any) -> Attempt:
        """What a row of the list, or a single delivery, says."""
        delivery_id = row.get("id") if isinstance(row, dict) else None
        event_id, event_type = _text(row, EVENT_IDS), _text(row, EVENT_TYPES)
        named = text_at(row, "event")
        # The types that the client names have a dot, and ids in a path have none.
        if named and "." in named:
            event_type = event_type or named
        elif named:
            event_id = event_id or named
        return cls(
            str(delivery_id) if _is_delivery_id(delivery_id) else "",
            event_id,
            event_type,
            next((time for time in _times(row)), None),
            _accepted(row),
        )


@dataclass(slots=True)
class Event:
    """An event with its deliveries."""

    identity: Identity
    first_at: datetime
    latest: Attempt
    latest_at: datetime
    accepted: bool

    def add(self, attempt: Attempt, at: datetime) -> None:
        """Count another delivery in."""
        self.accepted |= attempt.accepted
        self.first_at = min(self.first_at, at)
        if at >= self.latest_at:
            self.latest, self.latest_at = attempt, at


@dataclass(slots=True)
class Log:
    """The deliveries of an endpoint since a time, by event."""

    since: datetime
    events: dict[str, Event] = field(default_factory=dict)
    #: Deliveries that do not say of which event they are.
    nameless: list[Attempt] = field(default_factory=list)
    #: How many deliveries make no sense.
    unread: int = 0
    _newest: datetime | None = None
    _oldest: datetime | None = None
    _falling: bool = True

    @property
    def is_past(self) -> bool:
        """Whether all that follows is older: so it is if the list has been falling in time."""
        return (
            self._falling
            and self._oldest is not None
            and self._oldest != self._newest
            and self._oldest < self.since
        )

    def add(self, rows: list[Any]) -> None:
        """Count a page in."""
        for attempt in map(Attempt.read, rows):
            if attempt.at is None or not attempt.delivery_id:
                self.unread += 1
                continue
            self._falling &= self._oldest is None or attempt.at <= self._oldest
            self._newest = self._newest or attempt.at
            self._oldest = attempt.at
            if attempt.at < self.since:
                continue
            if attempt.event_id:
                self._add(attempt, attempt.at)
            else:
                self.nameless.append(attempt)

    def add_detail(self, attempt: Attempt, detail: Attempt) -> None:
        """Count in a delivery of the list that was asked for by itself."""
        if not detail.event_id or attempt.at is None:
            self.unread += 1
            return
        accepted = attempt.accepted or detail.accepted
        self._add(replace(detail, delivery_id=attempt.delivery_id, accepted=accepted), attempt.at)

    def _add(self, attempt: Attempt, at: datetime) -> None:
        known = self.events.get(attempt.event_id)
        if known is not None:
            known.add(attempt, at)
            return
        identity = Identity(attempt.event_id, attempt.event_type)
        self.events[attempt.event_id] = Event(identity, at, attempt, at, attempt.accepted)


def _text(row: Any, paths: tuple[str, ...]) -> str:
    return next((text for path in paths if (text := text_at(row, path))), "")


def _is_delivery_id(value: Any) -> bool:
    return is_id(value) or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


def _times(row: Any) -> Iterator[datetime]:
    for name in TIMES:
        value = row.get(name) if isinstance(row, dict) else None
        if isinstance(value, str):
            try:
                moment = parse_datetime(value)
            except ValueError:
                moment = None
            if moment is not None:
                yield moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        elif isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            try:
                yield datetime.fromtimestamp(value / 1000 if value > MILLISECONDS else value, UTC)
            except (OverflowError, OSError, ValueError):
                continue


def _accepted(row: Any) -> bool:
    """Whether a delivery was answered 2xx: something says so, and nothing says otherwise."""
    if not isinstance(row, dict):
        return False
    said: list[bool] = [row[name] for name in FLAGS if isinstance(row.get(name), bool)]
    said += [200 <= row[name] <= 299 for name in CODES if isinstance(row.get(name), int)]
    word = text_at(row, "status")
    if word:
        said.append(word.strip().lower() in GOOD_WORDS)
    elif isinstance(row.get("status"), int):
        said.append(200 <= row["status"] <= 299)
    return bool(said) and all(said)
