"""Look through what a source has sent, and get or run again what is not finished here."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError

from ..conf import conf
from ..dispatch.receipt import QueueFull
from ..dispatch.run_log import word
from ..dispatch.runs import HandlerLeft
from ..exceptions import MalformedWebhook, StoreUnavailable
from .base import RateLimited, Sent, Source, SourceError
from .configured import Recovery, name_of, recoveries
from .cursors import CursorLease, Taken, position
from .deciding import Case, Decision, decide
from .getting import Getter
from .listing import Patience, batches, known
from .missing import give_up, given_up, rows_of, tidy
from .moments import aware
from .report import Allowance, SourceReport

logger = logging.getLogger("django_webhook_idempotency")


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
        self.is_asked_anew = since is not None
        self.oldest = datetime.now(UTC) - source.horizon
        self.settled = self.oldest
        self.since = max(aware(since) or self.oldest, self.oldest)
        self.report = SourceReport(self.name, self.since)
        self.lease = CursorLease(self.name)
        self.unsettled: list[datetime] = []
        self.patience = Patience()
        self.getter = Getter(recovery, source, self.name, self.report, self.patience.wait)

    def run(self) -> SourceReport:
        """Look and act; whatever stands in the way is in the report."""
        try:
            self.look_and_move()
        except RateLimited as error:
            self.report.retry_at = datetime.now(UTC) + timedelta(seconds=error.retry_after)
        except Taken:
            self.report.is_busy = True
        except (SourceError, ImproperlyConfigured, QueueFull) as error:
            self.fail(str(error))
        except (DatabaseError, StoreUnavailable) as error:
            self.fail(f"The database or the lease store is away: {type(error).__name__}.")
        except Exception as error:
            # A source's own mistake. Its text may quote what the source has asked with.
            self.fail(f"The source raised {type(error).__name__} {place_of(error)}.")
        finally:
            self.end()
        return self.report

    def look_and_move(self) -> None:
        """Look through the source, and let the cursor follow if everything was looked at."""
        started = time.monotonic()
        if not self.dry_run:
            self.lease.take(self.oldest)
        self.settled = max(position(self.name) or self.oldest, self.oldest)
        if self.settled > datetime.now(UTC):
            # A clock was wrong: nobody knows what was looked at.
            self.settled = self.oldest
        if not self.is_asked_anew:
            self.since = self.report.since = self.settled
        self.look()
        if not self.dry_run and self.report.is_whole:
            # One answer with a wrong date must not move the cursor past what is still to come.
            now = min(self.source.now(), datetime.now(UTC))
            self.move(now - timedelta(seconds=time.monotonic() - started))

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
        except Exception as error:
            self.fail(f"The source raised {type(error).__name__} {place_of(error)}.")

    def move(self, began: datetime) -> None:
        """Let the cursor stand at the oldest event that is not settled, else at this run's start.

        A run that began later than the cursor stood has not seen what lies between.
        """
        if self.since <= self.settled:
            self.lease.move(min([*self.unsettled, began - self.source.grace]))

    def look(self) -> None:
        """Take the events in batches, each looked up with two queries."""
        for batch in self.listed():
            events = known(batch, self.source.provider)
            rows = rows_of(batch)
            if not self.dry_run:
                self.lease.renew()
            for key, each in batch.items():
                self.take(Case(key, each, events.get(key), rows.get(key)))

    def listed(self) -> Iterator[dict[str, Sent]]:
        """The batches, with the source held while each is waited for."""
        found = batches(self.source, self.since, self.patience)
        while True:
            with nullcontext() if self.dry_run else self.lease.kept():
                batch = next(found, None)
            if batch is None:
                return
            yield batch

    def take(self, case: Case) -> None:
        """Count one event, and get it or run it again if that is due."""
        report, attempts = self.report, self.recovery.terms.attempts
        report.found += 1
        fresh = self.source.now() - self.source.grace
        decision = decide(case, fresh, attempts, anew=self.is_asked_anew)
        if decision == Decision.GET and not self.getter.wants(case.sent):
            report.unwanted += 1
            settled = True
        elif decision in (Decision.RERUN, Decision.GET):
            if not self.allowance.take():
                report.is_cut = True
                return
            settled = not self.dry_run and self.get(decision, case)
            if self.dry_run:
                self.count(decision, case)
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
        except (MalformedWebhook, HandlerLeft) as error:
            self.fail(str(error))
            return False

    def count(self, decision: Decision, case: Case) -> None:
        """Count what would be done."""
        if decision == Decision.RERUN:
            self.report.rerun += 1
        elif case.sent.body is None:
            self.report.redelivered += 1
        else:
            self.report.ingested += 1


def place_of(error: BaseException) -> str:
    """Where an error was raised: the module's file and the line."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
