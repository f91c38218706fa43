"""Walk the tables by ranges of the primary key, each range in a short transaction of its own.

So a purge can be stopped anywhere and started again, two at once do each other no harm, and a
receipt waits for one range at the most. Ids are only roughly in the order of time: a range says
where to look, and each row is judged by its own `received_at`.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import DatabaseError, connections, transaction
from django.db.models import F, Max, Model, Q, QuerySet
from django.utils import timezone

from .. import ledger
from ..inserts import is_locked
from ..models import MissingEvent, WebhookEvent
from .policies import Policy
from .quarantine import Quarantine
from .walks import Bodies, Deliveries, Keys, Kind, Ordering, Walk

#: Rows in one transaction, and seconds between two.
BATCH_SIZE = 2000
PAUSE = 0.0
#: SQLite has one lock for all writers, who look for it every 25 to 100 ms: shorter transactions,
#: and pauses that let them in. Without the pause, one receipt in a hundred took 2.3 s; with it
#: 0.07 s.
SQLITE_BATCH_SIZE = 500
SQLITE_PAUSE = 0.05
#: How often a range is tried that met a deadlock or a locked database, and the longest pause
#: before the second try, in seconds; it doubles with each.
TRIES = 6
TRY_PAUSE = 0.1
#: Days for which a provider may have an event of which it does not say how long.
LONGEST_WINDOW = 90


class OutOfTime(Exception):
    """A purge reached its time limit with something left to look at."""


@dataclass(frozen=True)
class Progress:
    """Where a purge stands: what it is walking through, and the share of all walks behind it."""

    provider: str
    kind: Kind
    share: float


@dataclass
class Purge:
    """A purge of some providers; `removed` holds what went by provider and kind.

    Without a `batch_size` or a `pause`, the ones that suit the database are used. Times are in
    seconds.
    """

    policies: Sequence[Policy]
    batch_size: int | None = None
    pause: float | None = None
    max_seconds: float | None = None
    using: str = field(default_factory=ledger.alias)
    removed: dict[str, Counter[Kind]] = field(init=False)

    def __post_init__(self) -> None:
        sqlite = connections[self.using].vendor == "sqlite"
        self.batch_size = self.batch_size or (SQLITE_BATCH_SIZE if sqlite else BATCH_SIZE)
        if self.pause is None:
            self.pause = SQLITE_PAUSE if sqlite else PAUSE
        self.removed = {policy.provider: Counter() for policy in self.policies}
        self._bounds: dict[tuple[type[Model], str, datetime], int | None] = {}

    @property
    def walks(self) -> list[Walk]:
        """What there is to walk; keys before bodies, which need not be emptied to be deleted."""
        return [
            walk(policy, self.using)
            for walk in (Quarantine, Ordering, Deliveries, Keys, Bodies)
            for policy in self.policies
        ]

    def count(self) -> dict[str, Counter[Kind]]:
        """What would go now, exactly; the only thing here that counts rows."""
        counted: dict[str, Counter[Kind]] = {policy.provider: Counter() for policy in self.policies}
        for walk in self.walks:
            counted[walk.policy.provider] += walk.count()
        return counted

    def steps(self) -> Iterator[Progress]:
        """Purge range by range, telling after each where we are; stop asking, and it stops.

        Raises OutOfTime before the range that would begin after `max_seconds`.
        """
        walks, started = self.walks, time.monotonic()
        for done, walk in enumerate(walks):
            for share in self._walk(walk, started):
                yield Progress(walk.policy.provider, walk.kind, (done + share) / len(walks))
        self._forget_missing()

    def _forget_missing(self) -> None:
        """Forget what recovery asked for and nobody can get any more: few rows, and not counted.

        A run of recovery does so too; this is for a source that is asked no more.
        """
        slugs = [policy.provider for policy in self.policies]
        rows = MissingEvent.objects.using(self.using).filter(provider__in=slugs)
        never = timezone.now() - timedelta(days=LONGEST_WINDOW)
        gone = Q(leaves_at__lte=timezone.now()) | Q(leaves_at__isnull=True, sent_at__lt=never)
        rows.filter(gone)._raw_delete(self.using)

    def _walk(self, walk: Walk, started: float) -> Iterator[float]:
        """Purge one walk's rows, yielding the share of its ids that is behind us."""
        last = self._last(walk)
        ids = walk.rows.filter(pk__lte=last or 0).order_by("pk").values_list("pk", flat=True)
        first = ids.first()
        if last is None or first is None:
            return
        low = first - 1
        while (high := self._end_of_range(ids.filter(pk__gt=low))) is not None:
            if self.max_seconds is not None and time.monotonic() - started >= self.max_seconds:
                raise OutOfTime(
                    f"Stopped after {self.max_seconds:g} s in the {walk.kind} of "
                    f"{walk.policy.provider}, before id {low + 1} of {last}. What comes after that "
                    "is left."
                )
            self._remove(walk, partial(walk.purge, walk.old.filter(pk__gt=low, pk__lte=high)))
            low = high
            yield (low - first + 1) / (last - first + 1)
            time.sleep(self.pause or 0)
        self._remove(walk, walk.finish)

    def _end_of_range(self, ids: QuerySet[Any, int]) -> int | None:
        """The id that closes the next range, None if there are no rows left."""
        size = self.batch_size or BATCH_SIZE
        return next(iter(ids[size - 1 : size]), None) or ids.last()

    def _last(self, walk: Walk) -> int | None:
        """The highest id of a row that is old."""
        own = walk.policy.provider if isinstance(walk, Ordering) else ""
        key = walk.rows.model, own, walk.cutoff
        if key not in self._bounds:
            # Adding nothing keeps the planner from walking down the primary key through all that
            # is not old: the index on received_at leads to just the old rows.
            found = walk.aged.aggregate(last=Max(F("pk") + 0))
            self._bounds[key] = found["last"]
        return self._bounds[key]

    def _remove(self, walk: Walk, remove: Callable[[], Counter[Kind]]) -> None:
        """Run one transaction, again if the database undid it or somebody holds the lock."""
        tries = 1
        while True:
            try:
                with transaction.atomic(using=self.using, durable=True):
                    self._take_write_lock()
                    removed = remove()
                break
            except DatabaseError as error:
                if tries == TRIES or not (ledger.is_transient(error) or is_locked(error)):
                    raise
                time.sleep(random.uniform(0, TRY_PAUSE * 2**tries))  # noqa: S311
                tries += 1
        self.removed[walk.policy.provider] += removed

    def _take_write_lock(self) -> None:
        """On SQLite, take the one lock before the first read: a later upgrade could be refused."""
        if not connections[self.using].features.has_select_for_update:
            nothing = WebhookEvent.objects.using(self.using).filter(pk=0)
            nothing.update(attempts=F("attempts"))
