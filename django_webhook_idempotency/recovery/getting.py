"""Get one event: run it again, take it in, or have it sent again; counted and bounded."""

from __future__ import annotations

from collections.abc import Callable

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError

from ..dispatch.work import Result
from ..enums import Outcome
from ..exceptions import StoreUnavailable
from ..handlers import registry
from ..models import MissingEvent
from .base import NotSentAgain, RateLimited, Sent, Source, SourceError, SourceRefused
from .configured import Recovery
from .deciding import Case, Decision
from .missing import begin_anew, claim, forget, give_back, note, rests
from .report import SourceReport
from .running import ingest, is_finished, run_again

#: So many refusals with nothing sent again in between are the API's, and not those of the events.
REFUSALS = 5
#: What became of a delivery that leaves nothing to do.
_SETTLED = frozenset(
    {Outcome.PROCESSED, Outcome.IGNORED, Outcome.SUPERSEDED, Outcome.DUPLICATE, Outcome.REJECTED}
)


class Getter:
    """Gets the events of one source, and remembers how often it has asked for each."""

    def __init__(
        self,
        recovery: Recovery,
        source: Source,
        name: str,
        report: SourceReport,
        pause: Callable[[RateLimited], None],
    ) -> None:
        self.recovery = recovery
        self.source = source
        self.name = name
        self.report = report
        self.pause = pause
        self.refused: list[MissingEvent] = []
        self.has_sent = False

    def wants(self, sent: Sent) -> bool:
        """Whether anybody here wants the event; of what is to be sent again nobody can tell."""
        provider = self.recovery.provider
        if self.recovery.terms.view or sent.body is None:
            return True
        return bool(registry.find(provider.key, sent.identity.event_type))

    def get(self, decision: Decision, case: Case) -> bool:
        """Get one event; returns whether it is settled. Raises what ends the source's run."""
        sent = case.sent
        takes_in = decision == Decision.GET and sent.body is not None
        row = note(self.name, self.recovery.provider.key, case.key, sent, case.row)
        if row.given_up:
            begin_anew(row)
        # Where nothing was known of it, another source may have asked for it just now.
        if (case.row is None and rests(row)) or not claim(row):
            self.report.asked += 1
            return False
        try:
            if decision == Decision.RERUN:
                return self.rerun(case, row)
            return self.take_in(case) if takes_in else self.send_again(case, row)
        except (SourceError, ImproperlyConfigured, DatabaseError, StoreUnavailable):
            give_back(row)
            raise

    def rerun(self, case: Case, row: MissingEvent) -> bool:
        """Run the stored body again, or have it sent again where only a request can run it."""
        assert case.event is not None  # noqa: S101
        result = run_again(case.event.pk)
        if result is not None:
            self.report.rerun += 1
            return self.settle(case, result)
        if case.sent.body is None:
            return self.send_again(case, row)
        self.report.problems.append(
            f"Event {case.event.pk} stems from a view that reads the request itself, or its "
            "handler is gone: it can only be sent again by its provider."
        )
        return False

    def take_in(self, case: Case) -> bool:
        """Ingest the body that the source gave out."""
        body, view = case.sent.body, self.recovery.terms.view
        assert body is not None  # noqa: S101
        result = ingest(case.sent, body, self.recovery.provider, view)
        if result is None:
            self.report.unwanted += 1
            forget([case.key])
            return True
        self.report.ingested += 1
        return self.settle(case, result)

    def settle(self, case: Case, result: Result) -> bool:
        """Say what came of a run here; what waits for a worker is not settled yet."""
        self.report.failed += result.outcome == Outcome.FAILED
        if result.outcome not in _SETTLED:
            return False
        forget([case.key])
        return True

    def send_again(self, case: Case, row: MissingEvent) -> bool:
        """Have the provider send the event again, with the pauses that its API asks for.

        One that was finished since it was looked up is settled.
        """
        if is_finished(case.event.dedupe_key if case.event else case.key):
            self.report.processed += 1
            forget([case.key])
            return True
        while True:
            try:
                self.source.redeliver(case.sent)
            except RateLimited as error:
                self.pause(error)
            except NotSentAgain as error:
                self.refuse(row, error)
                return False
            else:
                self.has_sent = True
                self.report.redelivered += 1
                return False

    def refuse(self, row: MissingEvent, error: NotSentAgain) -> None:
        """Note that one event is not sent again. Raises SourceRefused where none is."""
        self.refused.append(row)
        if str(error) not in self.report.problems:
            self.report.problems.append(str(error))
        if not self.has_sent and len(self.refused) >= REFUSALS:
            raise SourceRefused("Nothing is sent again.") from error

    def end(self) -> None:
        """Where nothing was sent again, the refusals say nothing of the events."""
        if not self.has_sent:
            for row in self.refused:
                give_back(row)
