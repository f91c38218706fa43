"""Look through what a source has sent, and get or run again what is not finished here."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError

from .. import ledger
from ..conf import conf
from ..dispatch.intake import key_of
from ..dispatch.run_log import word
from ..exceptions import MalformedWebhook, StoreUnavailable
from ..models import WebhookEvent
from .base import RateLimited, Sent, Source, SourceError
from .configured import Recovery, name_of, recoveries
from .cursors import CursorLease, Taken, position
from .deciding import Case, Decision, decide
from .getting import Getter
from .missing import give_up, given_up, rows_of, tidy
from .moments import aware
from .report import Allowance, SourceReport

logger = logging.getLogger("django_webhook_idempotency")

#: Events that are looked up with one query.
BATCH = 200
#: Seconds that a run waits for an API in all; a longer pause ends it.
PATIENCE = 60.0


def recover(
    recovery: Recovery,
    *,
    since: datetime | None = None,
    dry_run: bool = False,
    allowance: Allowance | None = None,
) -> Iterator[SourceReport]:
    """Recover the events of one provider, source by source; what fails in one ends that one."""
    for source in recovery.sources:
        run = SourceRun(recovery, source, since, allowance or Allowance(), dry_run=dry_run)
        yield run.run()


def recover_all() -> None:
    """Recover every provider that has a RECOVERY, with nobody watching; the log tells the rest."""
    for slug in conf.providers:
        try:
            found = recoveries([slug], named=False)
        except ImproperlyConfigured as error:
            logger.error("webhook recovery leaves %s alone: %s", slug, error)
            continue
        for recovery in found:
            for report in recover(recovery):
                report.log()


class SourceRun:
    """One look through what a source has sent since a time."""

    def __init__(
        self,
        recovery: Recovery,
        source: Source,
        since: datetime | None,
        allowance: Allowance,
        *,
        dry_run: bool,
    ) -> None:
        self.recovery = recovery
        self.source = source
        self.name = name_of(source)
        self.dry_run = dry_run
        self.allowance = allowance
        since = aware(since)
        self.is_asked_anew = since is not None
        self.oldest = datetime.now(UTC) - source.horizon
        self.settled = max(position(self.name) or self.oldest, self.oldest)
        self.since = max(since, self.oldest) if since is not None else self.settled
        self.report = SourceReport(self.name, self.since)
        self.lease = CursorLease(self.name)
        self.unsettled: list[datetime] = []
        self.patience = PATIENCE
        self.getter = Getter(recovery, source, self.name, self.report, self.pause)

    def run(self) -> SourceReport:
        """Look and act; whatever stands in the way is in the report."""
        started = time.monotonic()
        try:
            if not self.dry_run:
                self.lease.take(self.oldest)
            self.look()
            if not self.dry_run and self.report.is_whole:
                self.move(self.source.now() - timedelta(seconds=time.monotonic() - started))
        except RateLimited as error:
            self.report.retry_at = datetime.now(UTC) + timedelta(seconds=error.retry_after)
        except Taken:
            self.report.is_busy = True
        except (SourceError, ImproperlyConfigured) as error:
            self.fail(str(error))
        except (DatabaseError, StoreUnavailable) as error:
            self.fail(f"The database or the lease store is away: {type(error).__name__}.")
        self.end()
        return self.report

    def fail(self, problem: str) -> None:
        """Note what ended the run."""
        self.report.problems.append(problem)
        logger.error("webhook recovery failed: source=%s %s", self.name, problem)

    def end(self) -> None:
        """Forget what is settled, and let the next run have the source."""
        try:
            if not self.dry_run:
                self.getter.end()
                tidy(self.name)
                self.lease.release()
            for row in given_up(self.name):
                self.report.given_up += 1
                self.warn(row.event_id, aware(row.leaves_at))
        except DatabaseError as error:
            self.fail(f"The database is away: {type(error).__name__}.")

    def move(self, began: datetime) -> None:
        """Let the cursor stand at the oldest event that is not settled, else at this run's start.

        A run that began later than the cursor stood has not seen what lies between.
        """
        if self.since <= self.settled:
            self.lease.move(min([*self.unsettled, began - self.source.grace]))

    def look(self) -> None:
        """Take the events in batches, each looked up with two queries."""
        for batch in self.batches():
            events = {event.dedupe_key: event for event in known(list(batch))}
            rows = rows_of(batch)
            if not self.dry_run:
                self.lease.renew()
            for key, each in batch.items():
                self.take(Case(key, each, events.get(key), rows.get(key)))

    def batches(self) -> Iterator[dict[str, Sent]]:
        """What was sent by dedupe key; what came before an error comes before it here too."""
        batch: dict[str, Sent] = {}
        try:
            for key, each in self.sent():
                batch[key] = each
                if len(batch) == BATCH:
                    yield batch
                    batch = {}
        except SourceError:
            if batch:
                yield batch
            raise
        if batch:
            yield batch

    def sent(self) -> Iterator[tuple[str, Sent]]:
        """What was sent by dedupe key, each event once, with the pauses that the API asks for."""
        seen: set[str] = set()
        while True:
            try:
                for sent in self.source.sent(self.since):
                    key = key_of(self.recovery.provider, sent.scope, sent.identity)
                    if key not in seen:
                        seen.add(key)
                        yield key, sent
            except RateLimited as error:
                self.pause(error)
            else:
                return

    def pause(self, error: RateLimited) -> None:
        """Wait as the API asks; raise the error if that is too long."""
        if error.retry_after > self.patience:
            raise error
        self.patience -= error.retry_after
        time.sleep(error.retry_after)

    def take(self, case: Case) -> None:
        """Count one event, and get it or run it again if that is due."""
        report, attempts = self.report, self.recovery.terms.attempts
        report.found += 1
        fresh = self.source.now() - self.source.grace
        decision = decide(case, fresh, attempts, anew=self.is_asked_anew)
        if decision in (Decision.RERUN, Decision.GET):
            if not self.allowance.take():
                report.is_cut = True
                return
            settled = self.dry_get(decision, case) if self.dry_run else self.get(decision, case)
        else:
            settled = decision.is_settled
            if decision.is_counted:
                setattr(report, decision.value, getattr(report, decision.value) + 1)
            elif decision == Decision.GIVE_UP and case.row is not None and not self.dry_run:
                give_up(case.row)
        if not settled:
            self.unsettled.append(case.sent.sent_at)
            self.warn(case.sent.identity.event_id, case.sent.leaves_at)

    def warn(self, event_id: str, leaves_at: datetime | None) -> None:
        """Raise the alarm for an event that is not settled, shortly before it is too late."""
        if leaves_at is None or leaves_at - self.source.now() >= self.recovery.terms.alarm:
            return
        self.report.leaving += 1
        logger.warning(
            "webhook event about to leave its provider's window: source=%s event=%s at=%s",
            self.name,
            word(event_id),
            leaves_at.isoformat(),
        )

    def get(self, decision: Decision, case: Case) -> bool:
        """Run it again or get it; returns whether it is settled."""
        self.lease.renew()
        try:
            return self.getter.get(decision, case)
        except MalformedWebhook as error:
            self.fail(str(error))
            return False

    def dry_get(self, decision: Decision, case: Case) -> bool:
        """Count what would be done."""
        if decision == Decision.RERUN:
            self.report.rerun += 1
        elif case.sent.body is None:
            self.report.redelivered += 1
        elif self.getter.wants(case.sent):
            self.report.ingested += 1
        else:
            self.report.unwanted += 1
            return True
        return False


def known(keys: list[str]) -> list[WebhookEvent]:
    """What the ledger says of some events, without their bodies."""
    events = WebhookEvent.objects.using(ledger.alias()).filter(dedupe_key__in=keys)
    return list(events.defer("body", "response_body"))
