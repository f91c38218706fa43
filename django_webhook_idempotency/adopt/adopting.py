"""Put remembered events into the ledger as finished ones; what is there already stays as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from django.db import connections
from django.utils import timezone

from .. import ledger
from ..dispatch.intake import key_of, whole_scope
from ..dispatch.runs import retried
from ..enums import FINISHED, EventStatus
from ..models import WebhookEvent, displayable
from ..providers import Identity, Provider
from ..retention import policy_of
from .bulk import insert_many_once
from .rows import AdoptError, Bad, Row
from .tables import BATCH

#: Why a row is skipped that is as good as any other.
TOO_OLD = "older than its key is kept"


@dataclass
class Report:
    """What became of the rows; `first` are the first of those that could not be read.

    Of the `known` ones, `unfinished` are still to be run here.
    """

    read: int = 0
    adopted: int = 0
    known: int = 0
    unfinished: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    first: list[Bad] = field(default_factory=list)

    #: How many bad rows are kept.
    KEPT = 10

    def skip(self, bad: Bad) -> None:
        """Count a row that cannot be read."""
        self.skipped[bad.why] += 1
        if len(self.first) < self.KEPT:
            self.first.append(bad)

    @property
    def is_good(self) -> bool:
        """Whether every row could be read."""
        return not self.first

    def as_dict(self) -> dict[str, Any]:
        """The same for a machine."""
        return {
            "read": self.read,
            "adopted": self.adopted,
            "known": self.known,
            "unfinished": self.unfinished,
            "skipped": dict(self.skipped),
            "first": [{"place": bad.place, "why": bad.why} for bad in self.first],
        }


@dataclass
class Adoption:
    """Takes the rows of one source over for one provider.

    Each batch is committed by itself: it can be stopped at any time and started again, beside
    receipts too. With `everything`, rows are taken over too whose keys the next purge deletes.
    """

    provider: Provider
    everything: bool = False
    dry_run: bool = False
    report: Report = field(default_factory=Report)

    def __post_init__(self) -> None:
        self._oldest = policy_of(self.provider.key, timezone.now()).keys
        self._using = ledger.alias()

    def steps(self, rows: Iterable[Row | Bad]) -> Iterator[Report]:
        """Take rows over batch by batch, giving the numbers so far after each.

        Raises AdoptError after it took what came before, or the database's own error.
        """
        source = iter(rows)
        problem: AdoptError | None = None
        while problem is None:
            batch: list[Row | Bad] = []
            try:
                # One by one: what came before an error stays.
                for row in islice(source, BATCH):
                    batch.append(row)
            except AdoptError as error:
                problem = error
            if not batch:
                break
            self._take(batch)
            yield self.report
        if problem is not None:
            raise problem

    def _take(self, batch: Sequence[Row | Bad]) -> None:
        report = self.report
        events: dict[str, WebhookEvent] = {}
        for row in batch:
            report.read += 1
            if isinstance(row, Bad):
                report.skip(row)
                continue
            if wrong := wrong_scope(self.provider, row.scope, row.url_scope):
                report.skip(Bad(row.place, wrong))
                continue
            event = self._event(row)
            if event.received_at < self._oldest and not self.everything:
                report.skipped[TOO_OLD] += 1
            elif event.dedupe_key in events:
                report.known += 1
            else:
                events[event.dedupe_key] = event
        there = self._there(events)
        report.known += len(there)
        report.unfinished += sum(status not in FINISHED for status in there.values())
        # In one order, so that two adoptions never wait for each other.
        new = [events[key] for key in sorted(events.keys() - there.keys())]
        if self.dry_run:
            report.adopted += len(new)
            return
        inserted = retried(partial(insert_many_once, connections[self._using], new))
        report.adopted += inserted
        report.known += len(new) - inserted

    def _there(self, events: Mapping[str, WebhookEvent]) -> dict[str, str]:
        """Where those stand that are in the ledger, by key."""
        rows = WebhookEvent.objects.using(self._using).filter(dedupe_key__in=list(events))
        return dict(rows.values_list("dedupe_key", "status"))

    def _event(self, row: Row) -> WebhookEvent:
        moment = row.moment or timezone.now()
        identity = Identity(row.event_id, row.event_type, row.scope)
        return WebhookEvent(
            provider=self.provider.key,
            scope=displayable(whole_scope(row.url_scope, row.scope)),
            event_id=displayable(row.event_id),
            dedupe_key=key_of(self.provider, row.url_scope, identity),
            event_type=displayable(row.event_type),
            status=EventStatus.PROCESSED,
            received_at=moment,
            processed_at=moment,
        )


def wrong_scope(provider: Provider, scope: str | None, url_scope: str) -> str:
    """Why no delivery can have those scopes, the provider's own and the URL's; empty if one can.

    `scope` is None where only the rows say it.
    """
    if scope is not None and not provider.may_scope(scope):
        return f"its scope is not {provider.scoped_by or 'one of the provider'}"
    if url_scope and provider.scopes is not None and url_scope not in provider.scopes:
        return "its scope in the URL is not among SCOPES"
    return ""
