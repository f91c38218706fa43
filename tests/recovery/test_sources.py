"""What any source goes through: bodies taken in, the order of things, and a source of one's own."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from django_webhook_idempotency.handlers import registry
from django_webhook_idempotency.models import (
    MissingEvent,
    RecoveryCursor,
    WebhookDelivery,
    WebhookEvent,
)
from django_webhook_idempotency.providers import Identity, Incoming
from django_webhook_idempotency.providers.stripe import Stripe
from django_webhook_idempotency.recovery import (
    Allowance,
    RateLimited,
    SourceError,
    cursors,
    recover,
    recover_all,
    recoveries,
    runner,
)
from django_webhook_idempotency.signals import webhook_processed
from tests.app.models import Effect
from tests.deliveries import body_of, deliver
from tests.recovery.sources import Ledger, sent
from tests.recovery.test_github import counts

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ledger(settings: Any) -> Iterator[Any]:
    """Give a function that sets RECOVERY, with a source that is empty still."""

    def configure(recovery: Any = None, **options: Any) -> None:
        entries = {"SOURCE": "tests.recovery.sources.Ledger", **(recovery or {})}
        own = {"SECRETS": ["whsec_0123456789abcdef"], "RECOVERY": entries, **options}
        settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": {"stripe": own}}

    configure()
    Ledger.events, Ledger.asked, Ledger.problem = [], [], None
    yield configure
    Ledger.events, Ledger.problem = [], None


@pytest.fixture
def effect(handlers: Any) -> None:
    """Register a handler of invoices."""
    handlers.add(
        lambda event: Effect.objects.create(event_id=event.event_id), "stripe", "invoice.*"
    )


def once(**options: Any) -> Any:
    (recovery,) = recoveries(["stripe"])
    (report,) = recover(recovery, **options)
    return report


class TestIngesting:
    def test_runs_what_is_wanted_and_stores_nothing_else(self, ledger, effect):
        heard = []

        def hear(**kwargs: Any) -> None:
            heard.append(kwargs["event"].event_id)

        webhook_processed.connect(hear)
        Ledger.events = [sent("evt_1"), sent("evt_2", event_type="charge.failed")]
        try:
            assert counts(once()) == {"found": 2, "ingested": 1, "unwanted": 1}
        finally:
            webhook_processed.disconnect(hear)
        event = WebhookEvent.objects.get()
        assert (event.event_id, event.status, event.data["id"]) == ("evt_1", "processed", "evt_1")
        assert heard == ["evt_1"]
        delivery = WebhookDelivery.objects.get()
        assert (delivery.origin, delivery.outcome) == ("recovered", "processed")
        assert delivery.body_digest == event.body_digest
        assert not MissingEvent.objects.exists()
        assert counts(once()) == {}

    def test_is_queued_where_events_are(self, ledger, effect):
        ledger(PROCESSING="queued")
        Ledger.events = [sent("evt_1")]
        assert counts(once()) == {"found": 1, "ingested": 1}
        assert WebhookEvent.objects.get().status == "pending"
        assert Effect.objects.count() == 0
        assert counts(once()) == {"found": 1, "pending": 1}

    def test_not_what_was_accepted(self, ledger, effect):
        Ledger.events = [sent("evt_1", accepted=True)]
        assert counts(once()) == {"found": 1, "unknown": 1}

    def test_what_fails_here_is_run_again_later(self, ledger, handlers):
        fails = [True]

        def flaky(event: Any) -> None:
            Effect.objects.create(event_id=event.event_id)
            if fails:
                raise RuntimeError("not yet")

        handlers.add(flaky, "stripe")
        ledger(BACKOFF=timedelta(milliseconds=1))
        Ledger.events = [sent("evt_1")]
        assert counts(once()) == {"found": 1, "ingested": 1, "failed": 1}
        fails.clear()
        MissingEvent.objects.update(asked_at=datetime.now(UTC) - timedelta(hours=1))
        past = datetime.now(UTC) - timedelta(seconds=1)
        WebhookEvent.objects.update(next_attempt_at=past)
        assert counts(once()) == {"found": 1, "rerun": 1}
        assert Effect.objects.count() == 1

    def test_with_the_scope_of_the_url(self, ledger, effect):
        Ledger.events = [sent("evt_1", scope="acme")]
        once()
        assert WebhookEvent.objects.get().scope == "acme/"
        assert counts(once()) == {}

    def test_by_a_view_class_that_handles_by_itself(self, ledger):
        ledger({"VIEW": "tests.recovery.sources.Till"})
        Ledger.events = [sent("evt_1")]
        assert counts(once()) == {"found": 1, "ingested": 1}
        assert Effect.objects.get().name == "till"

    def test_a_handler_that_is_gone_is_said_and_ends_no_run(self, ledger, handlers, effect):
        def fail(event: Any) -> None:
            raise RuntimeError

        handlers.add(fail, "stripe", "charge.failed")
        Ledger.events = [sent("evt_0", event_type="charge.failed"), sent("evt_1")]
        once(allowance=Allowance(1))
        registry.remove(fail)
        past = datetime.now(UTC) - timedelta(hours=1)
        WebhookEvent.objects.update(next_attempt_at=past)
        MissingEvent.objects.update(asked_at=past)
        report = once()
        assert (report.rerun, report.ingested) == (0, 1)
        assert "can only be sent again by its provider" in report.problems[0]
        assert Effect.objects.get().event_id == "evt_1"

    def test_a_full_queue_ends_the_run_and_counts_no_attempt(self, ledger, effect):
        ledger(PROCESSING="queued", MAX_PENDING=2)
        Ledger.events = [sent(f"evt_{number}") for number in range(4)]
        report = once()
        assert report.ingested == 2
        assert report.problems == ["Provider 'stripe' has 2 unfinished events, its MAX_PENDING."]
        assert sorted(MissingEvent.objects.values_list("attempts", flat=True)) == [0, 1, 1]

    def test_what_nobody_wants_uses_up_no_limit(self, ledger, effect):
        Ledger.events = [sent(f"evt_{number}", event_type="charge.updated") for number in (1, 2)]
        Ledger.events.append(sent("evt_3"))
        assert counts(once(allowance=Allowance(1))) == {"found": 3, "ingested": 1, "unwanted": 2}

    def test_a_handler_that_exits_ends_no_run(self, ledger, handlers):
        def leave(event: Any) -> None:
            if event.event_id == "evt_1":
                raise SystemExit(0)
            Effect.objects.create(event_id=event.event_id)

        handlers.add(leave, "stripe")
        Ledger.events = [sent("evt_1"), sent("evt_2")]
        report = once()
        assert report.problems == ["The handler of evt_1 raised SystemExit."]
        assert report.ingested == 1
        assert WebhookEvent.objects.get(event_id="evt_1").status == "failed"
        assert Effect.objects.get().event_id == "evt_2"


class TestSendingAgain:
    @pytest.fixture(autouse=True)
    def redelivered(self, monkeypatch):
        found: list[str] = []
        monkeypatch.setattr(Ledger, "redeliver", lambda source, each: found.append(source.key))
        return found

    @pytest.fixture
    def after_looking(self, monkeypatch):
        """Give a function that lets something happen between a look and what is done then."""
        plain = runner.__dict__["rows_of"]

        def put(happen: Any) -> None:
            def rows_of(keys: Any) -> Any:
                rows = plain(keys)
                monkeypatch.setattr(runner, "rows_of", plain)
                happen()
                return rows

            monkeypatch.setattr(runner, "rows_of", rows_of)

        return put

    def test_what_two_sources_list_is_asked_for_once(self, ledger, redelivered, after_looking):
        ledger({"ACCOUNTS": ["one", "two"]})
        Ledger.events = [sent("evt_1", body=None)]
        (recovery,) = recoveries()
        other = replace(recovery, sources=recovery.sources[1:])
        after_looking(lambda: list(recover(other)))
        first, second = recover(recovery)
        assert (first.asked, second.asked) == (1, 1)
        assert redelivered == ["two"]

    @pytest.mark.parametrize("came", [True, False], ids=["failed before", "unknown before"])
    def test_not_what_was_finished_meanwhile(
        self, ledger, redelivered, after_looking, handlers, client, came
    ):
        ledger(STORE_BODY="unfinished", BACKOFF=timedelta(microseconds=1))
        fails = [came]

        def flaky(event: Any) -> None:
            if fails.pop() if fails else False:
                raise RuntimeError

        handlers.add(flaky, "stripe")
        secret = "whsec_0123456789abcdef"
        if came:
            deliver(client, "stripe", "evt_1", secret=secret)
        else:
            fails.clear()
        after_looking(lambda: deliver(client, "stripe", "evt_1", secret=secret))
        # As `deliver` lets it come.
        scope = Stripe().identify(Incoming.stored(body_of("stripe", "evt_1"), "")).scope
        Ledger.events = [
            sent("evt_1", body=None, identity=Identity("evt_1", "invoice.paid", scope))
        ]
        assert counts(once()) == {"found": 1, "processed": 1}
        assert redelivered == []
        assert not MissingEvent.objects.exists()


class TestLooking:
    def test_costs_two_queries_for_many_that_are_done(self, ledger, effect):
        Ledger.events = [sent(f"evt_{number}") for number in range(150)]
        once()
        RecoveryCursor.objects.all().delete()
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert once().processed == 150
        assert len(queries) < 20

    def test_an_error_at_the_end_moves_nothing(self, ledger, effect):
        Ledger.events = [sent("evt_1")]
        Ledger.problem = SourceError("The network is away.")
        report = once()
        assert (report.ingested, report.problems) == (1, ["The network is away."])
        Ledger.problem = None
        assert counts(once()) == {"found": 1, "processed": 1}
        assert Ledger.asked[1] - Ledger.asked[0] < timedelta(minutes=1)

    def test_a_mistake_in_a_source_is_its_own_and_shows_no_text(self, ledger, effect, caplog):
        Ledger.events = [sent("evt_1")]
        Ledger.problem = KeyError("sk_secret")
        (problem,) = once().problems
        assert re.fullmatch(r"The source raised KeyError in sources.py, line \d+\.", problem)
        assert "sk_secret" not in caplog.text
        Ledger.problem = None
        assert once().is_whole, "the source is free again"

    def test_what_came_before_a_mistake_in_a_source_is_got(self, ledger, effect):
        Ledger.events = [sent("evt_1")]
        Ledger.problem = KeyError("delivered")
        assert once().ingested == 1
        assert Effect.objects.count() == 1

    @pytest.mark.parametrize("pause", [1e20, float("inf"), float("nan")])
    def test_a_pause_without_end_ends_no_other_source(self, ledger, effect, pause):
        ledger({"ACCOUNTS": ["one", "two"]})
        Ledger.problem = RateLimited(pause)
        (recovery,) = recoveries()
        latest = datetime.now(UTC) + timedelta(days=1, minutes=1)
        ends = [report.retry_at for report in recover(recovery)]
        assert len(ends) == 2
        assert all(end is not None and end < latest for end in ends)

    def test_who_is_interrupted_gives_the_source_back(self, ledger, effect):
        Ledger.problem = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            once()
        Ledger.problem = None
        assert once().is_whole

    def test_pauses_come_to_an_end(self, ledger, effect, monkeypatch):
        monkeypatch.setattr("django_webhook_idempotency.recovery.listing.PATIENCE", 2.5)
        Ledger.problem = RateLimited(0)
        assert once().retry_at is not None
        assert len(Ledger.asked) == 3

    def test_a_database_that_is_away_is_a_problem_of_the_run(self, ledger, effect):
        def refuse(execute: Any, sql: str, *rest: Any) -> Any:
            raise OperationalError("the database is away")

        with connection.execute_wrapper(refuse):
            report = once()
        assert report.problems[0].endswith("away: OperationalError.")

    def test_what_a_source_tells_twice_is_got_once(self, ledger, effect):
        Ledger.events = [sent("evt_1"), sent("evt_1")]
        assert counts(once()) == {"found": 1, "ingested": 1}

    def test_what_comes_again_after_a_pause_counts_once(self, ledger, effect, monkeypatch):
        monkeypatch.setattr("django_webhook_idempotency.recovery.listing.BATCH", 1)
        monkeypatch.setattr("django_webhook_idempotency.recovery.listing.PATIENCE", 1.5)
        Ledger.events = [sent("evt_1"), sent("evt_2")]
        Ledger.problem = RateLimited(1)
        report = once()
        assert len(Ledger.asked) == 2
        assert (report.found, report.ingested) == (2, 2)

    def test_a_list_that_takes_longer_than_the_lease_is_looked_through(
        self, ledger, effect, monkeypatch
    ):
        monkeypatch.setattr(cursors, "LEASE", timedelta(seconds=0.6))
        Ledger.events = [sent("evt_1")]
        reports: list[Any] = []
        plain = Ledger.sent

        def slow(source: Ledger, since: datetime) -> Any:
            if not reports:
                reports.append(None)
                time.sleep(1)
                reports.append(once())  # the next run of cron
            yield from plain(source, since)

        monkeypatch.setattr(Ledger, "sent", slow)
        assert counts(once()) == {"found": 1, "ingested": 1}
        assert reports[1].is_busy

    def test_a_list_that_never_ends_holds_the_source_no_longer(self, ledger, monkeypatch):
        monkeypatch.setattr(cursors, "LONGEST_WAIT", -1)
        monkeypatch.setattr(cursors, "LEASE", timedelta(seconds=0.3))
        reports: list[Any] = []

        def hang(source: Ledger, since: datetime) -> Any:
            if not reports:
                reports.append(None)
                time.sleep(0.5)
                reports.append(once())
            return iter(())

        monkeypatch.setattr(Ledger, "sent", hang)
        once()
        assert not reports[1].is_busy

    def test_accounts_have_cursors_of_their_own(self, ledger, effect):
        ledger({"ACCOUNTS": ["one", "two"]})
        (recovery,) = recoveries()
        assert [report.source for report in recover(recovery)] == ["stripe one", "stripe two"]
        assert RecoveryCursor.objects.count() == 2

    @pytest.mark.parametrize("use_tz", [True, False])
    def test_with_and_without_time_zones(self, ledger, effect, settings, use_tz):
        settings.USE_TZ = use_tz
        settings.TIME_ZONE = "Asia/Tokyo"
        leaves_at = datetime.now(UTC) + timedelta(hours=1)
        Ledger.events = [sent("evt_1", leaves_at=leaves_at, event_type="invoice.sent")]
        assert counts(once()) == {"found": 1, "ingested": 1}
        Ledger.events = []
        once()
        assert abs(Ledger.asked[1] - datetime.now(UTC) + timedelta(minutes=5)) < timedelta(
            minutes=1
        )

    def test_with_nobody_watching(self, ledger, effect, settings, caplog):
        wrong = {"RECOVERY": {"TOKEN": "x"}, "SECRETS": ["x"]}
        path = "tests.recovery.sources.Unready"
        unready = {"RECOVERY": {"SOURCE": path, "KEY": "sk_secret"}, "SECRETS": ["x"]}
        providers = settings.WEBHOOK_IDEMPOTENCY["PROVIDERS"]
        settings.WEBHOOK_IDEMPOTENCY = {
            "PROVIDERS": {"slack": wrong, "linear": unready, **providers}
        }
        Ledger.events = [sent("evt_1")]
        recover_all()
        assert "leaves slack alone" in caplog.text
        assert "linear alone" in caplog.text
        assert "cannot be read: Unready raised KeyError." in caplog.text
        assert "sk_secret" not in caplog.text
        assert Effect.objects.count() == 1
