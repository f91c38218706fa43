"""What the replays of an event leave of its handlers' past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from .. import ledger
from ..enums import FINISHED, EventStatus
from ..handlers import Handler
from ..models import Replay, WebhookEvent
from .turns import Turns


@dataclass(frozen=True)
class Terms:
    """What still counts of one handler's runs on an event.

    Successes up to the run `forgotten` do not, nor do failures up to the run `forgiven`.
    `left_out` says that the event was finished without the handler, and `given_up` that it was a
    dead letter, when another handler alone was to run again.
    """

    forgotten: int = 0
    forgiven: int = 0
    left_out: bool = False
    given_up: bool = False


class Replays:
    """The replays of one event, the newest first."""

    def __init__(self, event: WebhookEvent, rows: Sequence[Replay]) -> None:
        self.event = event
        self.rows = rows

    @classmethod
    def of(cls, event: WebhookEvent) -> Replays:
        """Read them; without a look where nothing has ever been forgiven, as a replay does."""
        if not event.forgiven:
            return cls(event, [])
        rows = Replay.objects.using(ledger.alias()).filter(event=event)
        return cls(event, list(rows.order_by("-pk")))

    def terms_of(self, name: str) -> Terms:
        """What still counts of a handler's runs, by its stored name."""
        forgotten = max((row.after for row in self.rows if row.handler in ("", name)), default=0)
        forgiven, left_out, given_up = self.event.forgiven, False, False
        for row in self.rows:
            # A redelivery since then has forgiven everybody, and so has a replay of all handlers.
            if row.handler in ("", name) or row.after != forgiven:
                break
            forgiven = row.others_forgiven
            left_out |= row.status_before in FINISHED
            given_up |= row.status_before == EventStatus.DEAD
        return Terms(forgotten, forgiven, left_out, given_up)

    def in_turn(self, handlers: Sequence[Handler]) -> list[Handler]:
        """The handlers, and first of them the one that alone was asked for by the last replay."""
        newest = self.rows[0] if self.rows else None
        asked = newest.handler if newest and newest.after == self.event.forgiven else ""
        return sorted(handlers, key=lambda each: each.stored_name != asked)

    def resting(
        self, todo: Sequence[Handler], turns: Turns
    ) -> tuple[list[Handler], datetime | None]:
        """Which handlers a replay of another one leaves to their own time, and when that is.

        They have no part in the first attempt, unless the other one waits for its turn.
        """
        newest = self.rows[0] if self.rows else None
        if newest is None or not newest.handler or newest.after != self.event.forgiven:
            return [], None
        asked = [each for each in todo if each.stored_name == newest.handler]
        others = [each for each in todo if each not in asked]
        if not (asked and others):
            return [], None
        now = timezone.now()
        until = max(newest.others_at or now, now)
        is_first = self.event.attempts - 1 == newest.after and not turns.is_waiting(asked[0])
        return (others, until) if is_first or until > now else ([], None)
