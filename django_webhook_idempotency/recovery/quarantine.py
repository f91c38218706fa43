"""Verify what was refused once more, and process what holds now."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import Error as AnyDatabaseError
from django.utils import timezone

from .. import ledger
from ..dispatch.deliveries import record
from ..dispatch.intake import deliver, new_event, with_secondary
from ..dispatch.reporting import announce, first_line, log_delivery
from ..dispatch.resolving import provider_again, work_again
from ..dispatch.secret_uses import write_use
from ..dispatch.work import DeliveryReport
from ..enums import Origin, Outcome
from ..exceptions import StoreUnavailable, WebhookError
from ..models import QuarantinedDelivery
from ..providers import Incoming, Provider
from .kept import incoming_of, kept_headers

logger = logging.getLogger("django_webhook_idempotency")

#: Deliveries that are read at once, with their bodies.
BATCH = 20
#: After so many errors of the database or the queue, one after the other, a run ends.
MAX_ERRORS = 3
#: Different problems that a report names.
MAX_PROBLEMS = 20

#: What became of the event of a kept delivery, and under which heading it is counted.
_COUNTED = {
    Outcome.ACCEPTED: "accepted",
    Outcome.DUPLICATE: "duplicates",
    Outcome.FAILED: "failed",
    Outcome.IN_PROGRESS: "postponed",
    # Its body came before, under another id.
    Outcome.REJECTED: "duplicates",
}


@dataclass
class Report:
    """What a run over the quarantine came to.

    Of what was `verified`, `processed` counts ignored and superseded events too, `handshakes` were
    dropped, and `postponed` ones stay for the next run. `refused` still do not verify; `unreadable`
    ones carry no event, or nobody knows how to read them, as the `problems` say. `stopped` says
    that the run ended early, because of the last of them.
    """

    looked_at: int = 0
    verified: int = 0
    processed: int = 0
    accepted: int = 0
    duplicates: int = 0
    failed: int = 0
    handshakes: int = 0
    postponed: int = 0
    refused: int = 0
    unreadable: int = 0
    problems: list[str] = field(default_factory=list)
    stopped: bool = False

    def note(self, provider: str, what: str) -> None:
        """Remember a problem, each once."""
        problem = f"{provider}: {what}"
        if problem not in self.problems and len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)


def reverify(
    providers: Iterable[str] = (), *, limit: int | None = None, dry_run: bool = False
) -> Report:
    """Verify kept deliveries with the secrets of now, oldest first, and process what holds.

    The time is judged as of the receipt. `providers` and `limit` bound what is looked at; with
    `dry_run` nothing is processed. Two runs at once, or one that was killed, do no harm: a row goes
    only after its event was stored, and the event's key lets it take effect once.
    """
    return Round(dry_run=dry_run).run(kept_deliveries(providers), limit)


def reverify_chosen(
    pks: Iterable[int], *, max_seconds: float | None = None, dry_run: bool = False
) -> Report:
    """As `reverify`, for the deliveries of these numbers; those left after `max_seconds` stay."""
    chosen = kept_deliveries().filter(pk__in=list(pks))
    return Round(dry_run=dry_run, max_seconds=max_seconds).run(chosen)


def kept_deliveries(providers: Iterable[str] = ()) -> Any:
    """The quarantined deliveries, of all providers or of some."""
    rows = QuarantinedDelivery.objects.using(ledger.alias())
    chosen = list(providers)
    return rows.filter(provider__in=chosen) if chosen else rows.all()


@dataclass
class Round:
    """One run over the quarantine."""

    dry_run: bool = False
    max_seconds: float | None = None
    report: Report = field(default_factory=Report)

    def __post_init__(self) -> None:
        self._providers: dict[tuple[str, str], Provider] = {}
        self._uses: dict[tuple[str, str], datetime] = {}
        self._errors = 0
        self._started = time.monotonic()

    @property
    def _is_over(self) -> bool:
        """Whether nothing more is to be looked at."""
        spent = time.monotonic() - self._started
        return self.report.stopped or (self.max_seconds is not None and spent >= self.max_seconds)

    def run(self, rows: Any, limit: int | None = None) -> Report:
        """Look at rows, oldest first, until there are no more that were there at the start."""
        ledger.require_no_transaction(ledger.alias())
        newest = rows.order_by("-pk").values_list("pk", flat=True).first() or 0
        last = 0
        while limit is None or self.report.looked_at < limit:
            size = BATCH if limit is None else min(BATCH, limit - self.report.looked_at)
            batch = list(rows.filter(pk__gt=last, pk__lte=newest).order_by("pk")[:size])
            for row in batch:
                if self._is_over:
                    break
                self._look_at(row)
            if self._is_over or len(batch) < size:
                break
            last = batch[-1].pk
        self._note_uses()
        return self.report

    def _look_at(self, row: QuarantinedDelivery) -> None:
        """Verify one row, and count what came of it."""
        report = self.report
        report.looked_at += 1
        try:
            self._verify(row)
            self._errors = 0
        except (AnyDatabaseError, StoreUnavailable) as error:
            self._errors += 1
            report.postponed += 1
            report.note(row.provider, first_line(error))
            ledger.drop_broken_connection(ledger.alias())
            report.stopped = self._errors >= MAX_ERRORS
        except (ImproperlyConfigured, WebhookError) as error:
            report.unreadable += 1
            report.note(row.provider, first_line(error))
        except Exception as error:
            # A tenant that is gone, or a mistake in the project's code: of this row alone. What
            # the error says may quote it.
            report.unreadable += 1
            report.note(row.provider, type(error).__name__)

    def _provider(self, row: QuarantinedDelivery) -> Provider:
        """The provider of a row as it was at the receipt. Raises ImproperlyConfigured."""
        key = row.provider, row.view
        if key not in self._providers:
            self._providers[key] = provider_again(*key)
        return self._providers[key]

    def _verify(self, row: QuarantinedDelivery) -> None:
        provider, incoming = self._provider(row), incoming_of(row, self._provider(row))
        if not provider.is_signed or timezone.now() - row.received_at > provider.quarantine_time:
            self.report.refused += 1
            return
        secrets = provider.live_secrets(row.scope)
        verdict = provider.verify(incoming.message, secrets, row.received_at.timestamp())
        if verdict.secret is None or verdict.reason is not None:
            self.report.refused += 1
            return
        fingerprint = verdict.secret.fingerprint
        if self.dry_run:
            self.report.verified += 1
        elif provider.handshake(incoming) is not None:
            # Whoever shook hands has long gone away.
            self.report.verified += 1
            self.report.handshakes += 1
            forget(row)
        elif kept_deliveries().filter(pk=row.pk).exists():  # no other run was quicker
            self._process(row, provider, incoming, fingerprint)

    def _process(
        self, row: QuarantinedDelivery, provider: Provider, incoming: Incoming, fingerprint: str
    ) -> None:
        """Deliver a verified row as if it came now, then delete it.

        In this order: a crash between the two leaves a copy, which the event's key makes one.
        """
        delivery = DeliveryReport(
            provider,
            origin=Origin.QUARANTINE,
            headers=kept_headers(row, provider),
            body_digest=provider.body_digest(incoming.body),
            secret_fingerprint=fingerprint,
            received_at=row.received_at,
        )
        event = new_event(
            provider,
            incoming,
            with_secondary(provider.identify(incoming), provider, incoming),
            scope=row.scope,
            content_type=row.content_type,
            body_digest=delivery.body_digest,
            received_at=row.received_at,
        )
        self.report.verified += 1
        work = work_again(event, row.view, delivery)
        result = deliver(event, work)
        if not result.recorded:
            work.settle(result)
            record(delivery, result.event)
        about = result.event or event
        log_delivery(delivery, about, error=result.error)
        announce(result, about, delivery)
        heading = _COUNTED.get(result.outcome, "processed")
        setattr(self.report, heading, getattr(self.report, heading) + 1)
        use = provider.key, fingerprint
        self._uses[use] = max(row.received_at, self._uses.get(use, row.received_at))
        if result.outcome != Outcome.IN_PROGRESS:
            forget(row)

    def _note_uses(self) -> None:
        """Note which secrets verified something; as of the receipt."""
        for (provider, fingerprint), at in self._uses.items():
            try:
                write_use(provider, fingerprint, at)
            except AnyDatabaseError as error:
                logger.warning("webhook use of a secret not noted: %s", type(error).__name__)


def forget(row: QuarantinedDelivery) -> None:
    """Delete a row that has been dealt with; another run may have been quicker."""
    QuarantinedDelivery.objects.using(ledger.alias()).filter(pk=row.pk).delete()
