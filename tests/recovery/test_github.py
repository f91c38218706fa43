"""Recovery from GitHub over real HTTP: what is listed, what is sent again, and what is not."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import RequestFactory

from django_webhook_idempotency.decorators import idempotent_webhook
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.exceptions import Reject
from django_webhook_idempotency.models import (
    HandlerRun,
    MissingEvent,
    RecoveryCursor,
    WebhookDelivery,
    WebhookEvent,
)
from django_webhook_idempotency.providers import Identity
from django_webhook_idempotency.recovery import (
    Allowance,
    Sent,
    SourceReport,
    cursors,
    missing,
    recover,
    recoveries,
)
from django_webhook_idempotency.recovery.deciding import Case, Decision
from django_webhook_idempotency.recovery.getting import Getter
from django_webhook_idempotency.recovery.github_api import GitHubAPI
from tests.app.models import Effect
from tests.deliveries import signed_headers
from tests.recovery.conftest import HOOK, configure
from tests.recovery.fake_github import APP_HOOK, TOKEN, Canned, FakeGitHub

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "github repos/octo/shop/hooks/42"
DAY = timedelta(days=1)


def counts(report: Any) -> dict[str, int]:
    """The counts that are not zero."""
    whole = report.as_dict()
    return {name: count for name, count in whole.items() if count and type(count) is int}


@pytest.fixture
def served(github: FakeGitHub, live_server: Any, handlers: Any) -> FakeGitHub:
    """GitHub delivers to a server whose handler leaves an effect."""
    github.target = f"{live_server.url}/webhooks/github/"
    handlers.add(lambda event: Effect.objects.create(event_id=event.event_id), "github")
    return github


def lost(github: FakeGitHub, age: timedelta = timedelta(hours=1), **more: Any) -> Any:
    """An event that could not be delivered."""
    event = github.happen(**more)
    github.note(HOOK, event, 502, "failed to connect to host", age=age)
    return event


class TestWhatIsSentAgain:
    def test_what_did_not_arrive(self, served, run):
        event = lost(served, name="issues", action="opened")
        assert counts(run()) == {"found": 1, "redelivered": 1}
        stored = WebhookEvent.objects.get(event_id=event.guid)
        assert (stored.status, stored.scope, stored.event_type) == (
            "processed",
            "42",
            "issues.opened",
        )
        assert Effect.objects.count() == 1
        assert counts(run()) == {"found": 1, "processed": 1}
        assert len(served.attempts) == 1
        assert not MissingEvent.objects.exists()

    def test_not_what_was_processed_though_it_timed_out(self, served, run):
        event = served.happen()
        assert served.post(HOOK, event) == 200
        served.note(HOOK, event, 504, "timed out")
        assert counts(run()) == {"found": 1, "processed": 1}
        assert served.attempts == []

    def test_not_what_is_accepted_though_nobody_knows_it(self, served, run):
        served.note(HOOK, served.happen(), 200)
        assert counts(run()) == {"found": 1, "unknown": 1}
        assert served.attempts == []

    def test_what_was_throttled_or_is_pending(self, served, run):
        served.note(HOOK, served.happen(), 0, "throttled", throttled_at="2026-01-01T00:00:00Z")
        served.note(HOOK, served.happen(), 0, "pending")
        assert counts(run()) == {"found": 2, "redelivered": 2}

    def test_once_for_all_deliveries_of_an_event_and_the_newest(self, served, run):
        event = lost(served, age=timedelta(hours=3))
        newest = served.note(HOOK, event, 500, age=timedelta(hours=2), redelivery=True)
        assert counts(run()) == {"found": 1, "redelivered": 1}
        assert served.attempts == [f"{HOOK}/deliveries/{newest['id']}/attempts"]

    def test_one_accepted_delivery_among_them_will_do(self, served, run):
        event = lost(served, age=timedelta(hours=3))
        served.note(HOOK, event, 202, age=timedelta(hours=2), redelivery=True)
        served.note(HOOK, event, 500, age=timedelta(hours=1), redelivery=True)
        assert counts(run()) == {"found": 1, "unknown": 1}

    def test_no_ping_and_nothing_of_an_empty_list(self, served, run):
        assert counts(run()) == {}
        served.note(HOOK, served.happen("ping"), 500)
        assert counts(run()) == {}
        assert served.attempts == []

    def test_not_what_is_fresh(self, served, run):
        lost(served, age=timedelta(minutes=1))
        assert counts(run()) == {"found": 1, "fresh": 1}
        assert served.attempts == []

    def test_what_another_hook_received_is_not_here(self, served, run):
        event = served.happen()
        assert served.post("/repos/octo/shop/hooks/43", event) == 200
        served.note(HOOK, event, 500)
        assert counts(run()) == {"found": 1, "redelivered": 1}
        assert WebhookEvent.objects.count() == 2


class TestWhatRunsAgainHere:
    def test_what_failed_in_the_request(self, served, run, handlers):
        fails = [True]

        def flaky(event):
            Effect.objects.create(event_id=event.event_id, name="flaky")
            if fails:
                raise RuntimeError("not yet")

        handlers.add(flaky, "github")
        event = served.happen()
        assert served.deliver(HOOK, event)["status_code"] == 500
        served.deliveries[HOOK][0]["delivered_at"] = "2026-01-01T00:00:00Z"
        age(served)
        report = run()
        assert (report.rerun, report.failed) == (1, 1)
        fails.clear()
        assert counts(run()) == {"found": 1, "asked": 1}, "it rests after a failure"
        MissingEvent.objects.update(asked_at=datetime.now(UTC) - DAY)
        past_the_backoff()
        assert counts(run()) == {"found": 1, "rerun": 1}
        assert sorted(Effect.objects.values_list("name", flat=True)) == ["", "flaky"]
        assert served.attempts == []
        rows = WebhookDelivery.objects.order_by("pk").values_list("origin", "outcome")
        assert list(rows) == [
            ("request", "failed"),
            ("recovered", "failed"),
            ("recovered", "processed"),
        ]

    def test_what_died_though_github_thinks_it_fine(self, served, run):
        event = served.happen()
        served.deliver(HOOK, event, age=timedelta(hours=1))
        Effect.objects.all().delete()
        died(event)
        assert counts(run()) == {"found": 1, "rerun": 1}
        assert WebhookEvent.objects.get().status == EventStatus.PROCESSED
        assert Effect.objects.count() == 1

    def test_what_died_is_queued_again_with_its_attempts_forgiven(self, served, run, settings):
        event = served.happen()
        served.deliver(HOOK, event, age=timedelta(hours=1))
        died(event)
        configure(settings, served, PROCESSING="queued")
        assert counts(run()) == {"found": 1, "rerun": 1}
        stored = WebhookEvent.objects.get()
        assert (stored.status, stored.lane, stored.forgiven) == ("pending", "github", 20)
        assert counts(run()) == {"found": 1, "pending": 1}, "it is left to the worker"
        assert RecoveryCursor.objects.get().settled_until < datetime.now(UTC) - timedelta(
            minutes=59
        )

    def test_not_what_a_handler_rejected_for_good(self, served, run, handlers):
        def refuse(event):
            raise Reject("never")

        handlers.add(refuse, "github")
        served.deliver(HOOK, served.happen(), age=timedelta(hours=1))
        assert counts(run()) == {"found": 1, "rejected": 1}

    def test_not_what_somebody_runs_now(self, served, run):
        event = served.happen()
        served.deliver(HOOK, event, age=timedelta(hours=1))
        WebhookEvent.objects.update(
            status="processing", lease_token="x", lease_expires_at=datetime.now(UTC) + DAY
        )
        assert counts(run()) == {"found": 1, "pending": 1}

    def test_not_what_only_a_request_can_run(self, github, run):
        """A view that reads the request itself failed: no handler here knows what it does."""

        @idempotent_webhook("github")
        def fail(request):
            raise RuntimeError

        github.redelivers = False
        event = github.happen()
        headers = signed_headers("github", event.body, event.guid, "push")
        headers["X-GitHub-Hook-ID"] = "42"
        request = RequestFactory().generic(
            "POST", "/", event.body, "application/json", headers=headers
        )
        assert fail(request).status_code == 500
        github.note(HOOK, event, 500)
        past_the_backoff()
        assert counts(run()) == {"found": 1, "redelivered": 1}
        assert github.attempts

    def test_not_what_such_a_view_failed_on_where_a_handler_wants_it_too(self, served, run):
        event = served.happen()
        served.deliver(HOOK, event, age=timedelta(hours=1))
        WebhookEvent.objects.update(status="failed", lane=None, next_attempt_at=None)
        assert counts(run()) == {"found": 1, "redelivered": 1}

    def test_not_what_died_in_such_a_view(self, served, run):
        """A handler of the project's wants the event too, but it was not what failed."""
        event = served.happen()
        served.deliver(HOOK, event, age=timedelta(hours=1))
        died(event)
        HandlerRun.objects.create(
            event=WebhookEvent.objects.get(),
            handler="shop.views.github",
            number=20,
            started_at=ago(60),
            finished_at=ago(60),
            error_class="RuntimeError",
        )
        assert counts(run()) == {"found": 1, "redelivered": 1}
        assert served.attempts


def died(event: Any) -> None:
    """Let an event be a dead letter."""
    found = WebhookEvent.objects.filter(event_id=event.guid)
    assert found.update(
        status="dead", lane=None, next_attempt_at=None, attempts=20, processed_at=None
    )


def age(github: FakeGitHub) -> None:
    """Let every delivery be an hour old."""
    for item in github.deliveries[HOOK]:
        past = github.now() - timedelta(hours=1)
        item["delivered_at"] = past.strftime("%Y-%m-%dT%H:%M:%SZ")


def past_the_backoff() -> None:
    WebhookEvent.objects.update(next_attempt_at=datetime.now(UTC) - timedelta(seconds=1))


class TestHowFarItLooks:
    def test_over_all_pages_once_and_then_from_where_all_is_settled(self, served, run):
        served.page_size = 10
        for hour in range(35):
            served.note(HOOK, served.happen(), 200, age=timedelta(hours=2 * hour + 1))
        assert counts(run()) == {"found": 35, "unknown": 35}
        assert len(served.requests) == 4
        assert counts(run()) == {}
        assert len(served.requests) == 5

    def test_not_beyond_what_github_remembers(self, served, run):
        lost(served, age=timedelta(days=3, minutes=1))
        lost(served, age=timedelta(days=2, hours=1))
        assert counts(run()) == {"found": 1, "redelivered": 1}

    def test_seven_days_on_an_enterprise_server(self, served, run, settings):
        configure(settings, served, {"BASE_URL": f"{served.url}/api/v3"}, ENTERPRISE_SERVER=True)
        lost(served, age=timedelta(days=6))
        assert counts(run()) == {"found": 1, "redelivered": 1}

    def test_the_cursor_waits_for_what_is_not_settled(self, served, run):
        served.redelivers = False
        lost(served, age=timedelta(hours=5))
        served.note(HOOK, served.happen(), 200, age=timedelta(hours=9))
        run()
        settled = RecoveryCursor.objects.get(source=NAME).settled_until
        assert abs(settled - datetime.now(UTC) + timedelta(hours=5)) < timedelta(seconds=5)

    def test_a_limit_does_not_move_it(self, served, run):
        for hours in (1, 2, 3):
            lost(served, age=timedelta(hours=hours))
        report = run(allowance=Allowance(2))
        assert (report.redelivered, report.is_cut) == (2, True)
        settled = RecoveryCursor.objects.get().settled_until
        assert settled < datetime.now(UTC) - timedelta(days=2)
        assert counts(run()) == {"found": 3, "processed": 2, "redelivered": 1}

    def test_a_date_in_the_future_does_not_pass_over_what_comes(self, served, run):
        served.offset = 365 * DAY
        run()
        served.offset = timedelta(0)
        assert RecoveryCursor.objects.get().settled_until < ago(4)
        lost(served, age=timedelta(minutes=1))
        assert counts(run()) == {"found": 1, "fresh": 1}

    def test_a_cursor_in_the_future_tells_nothing(self, served, run):
        run()
        RecoveryCursor.objects.update(settled_until=datetime.now(UTC) + DAY)
        lost(served)
        assert counts(run()) == {"found": 1, "redelivered": 1}
        assert RecoveryCursor.objects.get().settled_until < datetime.now(UTC)

    def test_a_later_since_does_not_move_it(self, served, run):
        run(since=datetime.now(UTC) - timedelta(hours=1))
        assert RecoveryCursor.objects.get().settled_until < datetime.now(UTC) - 2 * DAY

    def test_by_githubs_clock(self, served, run):
        """Ours is ten minutes fast: what is sent in the next minutes must not be passed over."""
        served.offset = -timedelta(minutes=10)
        lost(served, age=timedelta(minutes=2))
        assert counts(run()) == {"found": 1, "fresh": 1}
        settled = RecoveryCursor.objects.get().settled_until
        assert settled < served.now() - timedelta(minutes=4, seconds=50)
        served.deliveries[HOOK].clear()
        run()
        settled = RecoveryCursor.objects.get().settled_until
        assert abs(served.now() - timedelta(minutes=5) - settled) < timedelta(seconds=5)


class TestHowOftenItAsks:
    def test_not_again_before_a_pause_and_then_less_and_less(self, served, run):
        served.redelivers = False
        lost(served)
        assert counts(run()) == {"found": 1, "redelivered": 1}
        for attempts, minutes in ((1, 10), (2, 20), (3, 40)):
            row = MissingEvent.objects.get()
            assert row.attempts == attempts
            MissingEvent.objects.update(asked_at=ago(minutes - 1))
            assert counts(run()) == {"found": 1, "asked": 1}
            MissingEvent.objects.update(asked_at=ago(minutes + 1))
            assert counts(run()) == {"found": 1, "redelivered": 1}

    def test_gives_up_and_says_so_until_it_is_asked_anew(self, served, run, settings, caplog):
        configure(settings, served, {"ATTEMPTS": 2})
        served.redelivers = False
        lost(served)
        for _ in range(2):
            assert run().redelivered == 1
            MissingEvent.objects.update(asked_at=ago(60))
        assert counts(run()) == {"found": 1, "given_up": 1}
        assert "given up after 2 attempts" in caplog.text
        assert counts(run()) == {"given_up": 1}, "the cursor has passed it"
        served.redelivers = True
        report = run(since=datetime.now(UTC) - DAY)
        assert counts(report) == {"found": 1, "redelivered": 1}
        assert counts(run()) == {"found": 1, "processed": 1}
        assert Effect.objects.count() == 1

    def test_what_has_arrived_or_is_lost_is_remembered_no_longer(self, served, run, caplog):
        served.redelivers = False
        arrives, goes = lost(served), lost(served)
        run()
        served.post(HOOK, arrives)
        gone = MissingEvent.objects.filter(event_id=goes.guid)
        gone.update(leaves_at=ago(1), given_up=True)
        served.deliveries[HOOK].clear()
        assert counts(run()) == {}
        assert not MissingEvent.objects.exists()
        assert "has it no longer" in caplog.text

    def test_raises_the_alarm_before_it_is_too_late(self, served, run, caplog, settings):
        served.redelivers = False
        event = lost(served, age=timedelta(days=2, hours=13))
        assert counts(run()) == {"found": 1, "redelivered": 1, "leaving": 1}
        assert event.guid in caplog.text
        configure(settings, served, {"ALARM": timedelta(hours=2)})
        assert run().leaving == 0

    def test_two_runs_at_once_ask_once(self, served, run):
        lost(served)
        other = cursors.CursorLease(NAME)
        other.take(datetime.now(UTC) - DAY)
        report = run()
        assert report.is_busy
        assert served.requests == []
        assert counts(report) == {}
        other.release()
        assert run().redelivered == 1

    def test_an_attempt_is_claimed_once(self, served, run):
        served.redelivers = False
        lost(served)
        run()
        row, same = MissingEvent.objects.get(), MissingEvent.objects.get()
        assert missing.claim(row)
        assert not missing.claim(same)

    def test_one_of_two_runs_that_have_both_looked_asks(self, served, run):
        served.redelivers = False
        event = lost(served)
        run()
        row = MissingEvent.objects.get()
        MissingEvent.objects.update(attempts=2)
        (recovery,) = recoveries()
        report = SourceReport(NAME, ago(60))
        sent = Sent(Identity(event.guid, "push", "42"), ago(60), accepted=False, handle=1001)
        getter = Getter(recovery, recovery.sources[0], NAME, report, pause=lambda error: None)
        assert not getter.get(Decision.GET, Case(row.dedupe_key, sent, None, row))
        assert counts(report) == {"asked": 1}
        assert len(served.attempts) == 1

    def test_a_dry_run_changes_nothing(self, served, run):
        lost(served)
        assert counts(run(dry_run=True)) == {"found": 1, "redelivered": 1}
        assert served.attempts == []
        assert not RecoveryCursor.objects.exists()
        assert not MissingEvent.objects.exists()


def ago(minutes: float) -> datetime:
    return datetime.now(UTC) - timedelta(minutes=minutes)


class TestWhatStandsInTheWay:
    @pytest.mark.parametrize("status", [403, 429])
    def test_a_short_pause_is_waited_for(self, served, run, status):
        lost(served)
        served.canned = [
            Canned("GET", status, {"Retry-After": "1"}),
            Canned("POST", status, {"Retry-After": "1"}),
        ]
        started = time.monotonic()
        assert counts(run()) == {"found": 1, "redelivered": 1}
        assert time.monotonic() - started >= 2
        assert Effect.objects.count() == 1

    def test_a_page_that_was_refused_is_the_next_to_be_asked_for(self, served, run):
        served.page_size = 2
        for hours in range(1, 6):
            served.note(HOOK, served.happen(), 200, age=timedelta(hours=hours))
        served.canned = [Canned("GET", 429, {"Retry-After": "0"}, after=1)]
        assert counts(run()) == {"found": 5, "unknown": 5}
        assert len(served.requests) == 4

    def test_a_long_pause_ends_the_run(self, served, run):
        lost(served)
        reset = str(int((served.now() + timedelta(minutes=30)).timestamp()))
        limits = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}
        served.canned = [Canned("POST", 403, limits, b'{"message": "rate limit exceeded"}')]
        report = run()
        assert 1700 < (report.retry_at - datetime.now(UTC)).total_seconds() < 1810
        assert report.redelivered == 0
        assert MissingEvent.objects.get().attempts == 0, "it does not count"
        assert RecoveryCursor.objects.get().settled_until < ago(60 * 24)
        assert counts(run()) == {"found": 1, "redelivered": 1}

    @pytest.mark.parametrize("seconds", ["99999999999999999", "9" * 400])
    def test_a_pause_without_end_is_one_of_a_day(self, served, run, seconds):
        served.canned.append(Canned("GET", 429, {"Retry-After": seconds}))
        assert run().retry_at < datetime.now(UTC) + DAY

    def test_pages_that_go_round_are_an_error(self, served, run, monkeypatch):
        item = served.note(HOOK, served.happen(), 502)
        asked = []

        def get(api: Any, path: str, owner: str = "", **params: Any) -> Any:
            asked.append(params.get("cursor", ""))
            return [item], "b" if asked[-1] == "a" and len(asked) < 9 else "a"

        monkeypatch.setattr(GitHubAPI, "get", get)
        assert run().problems == ["GitHub's list of deliveries leads back to an earlier page."]
        assert asked == ["", "a", "b"]

    def test_the_last_request_that_is_allowed_is_the_last(self, served, run):
        served.page_size = 1
        for hours in range(1, 3):
            served.note(HOOK, served.happen(), 200, age=timedelta(hours=hours))
        reset = str(int((served.now() + timedelta(minutes=30)).timestamp()))
        limits = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}
        link = {"Link": f'<{served.url}{HOOK}/deliveries?cursor=1>; rel="next"'}
        served.canned = [Canned("GET", 200, limits | link, b"[]")]
        served.canned[0].body = b'[{"event": "ping"}]'
        assert run().retry_at is not None
        assert len(served.requests) == 1

    def test_a_pause_counts_by_githubs_clock(self, served, run):
        served.offset = timedelta(hours=1)
        reset = str(int(served.now().timestamp()) + 1)
        limits = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}
        served.canned = [Canned("GET", 403, limits)]
        assert run().retry_at is None

    @pytest.mark.parametrize("status", [500, 502, 503])
    def test_an_error_of_the_server_moves_nothing(self, served, run, status):
        lost(served)
        served.canned = [Canned("POST", status)]
        report = run()
        assert report.problems == [f"GitHub answered {status}."]
        assert MissingEvent.objects.get().attempts == 0
        assert RecoveryCursor.objects.get().settled_until < ago(60 * 24)
        assert counts(run()) == {"found": 1, "redelivered": 1}

    def test_an_expired_token(self, served, run, caplog):
        served.tokens.clear()
        report = run()
        assert "answered 401" in report.problems[0]
        assert TOKEN not in caplog.text + repr(report)

    def test_no_such_hook(self, served, run):
        del served.deliveries[HOOK]
        assert "answered 404" in run().problems[0]

    def test_a_token_that_may_only_read(self, served, run):
        """The attempts are not used up until somebody gives it the permission."""
        for hours in range(1, 9):
            lost(served, age=timedelta(hours=hours))
        served.canned = [Canned("POST", 404, times=99)]
        report = run()
        assert "allowed to write webhooks" in report.problems[0]
        assert len(served.attempts) == 5
        assert set(MissingEvent.objects.values_list("attempts", flat=True)) == {0}
        served.canned.clear()
        assert run().redelivered == 8

    def test_one_event_that_is_not_sent_again(self, served, run):
        for hours in range(1, 4):
            lost(served, age=timedelta(hours=hours))
        served.canned = [Canned("POST", 422)]
        assert run().redelivered == 2
        arrived = WebhookEvent.objects.values("event_id")
        row = MissingEvent.objects.exclude(event_id__in=arrived).get()
        assert row.attempts == 1

    @pytest.mark.parametrize("body", [b"<html>", b"{}", b'[{"id": 1}]'])
    def test_an_answer_that_is_none(self, served, run, body):
        served.canned = [Canned("GET", 200, {}, body)]
        assert run().problems

    @pytest.mark.parametrize("guid", [None, "", 7])
    def test_a_delivery_without_a_guid(self, served, run, guid):
        served.note(HOOK, served.happen(), 502, guid=guid)
        assert run().problems == ["GitHub's list of deliveries cannot be read."]
        assert served.attempts == []

    def test_nobody_listens(self, served, run, settings):
        configure(settings, served, {"BASE_URL": "http://127.0.0.1:9"})
        assert "ConnectionError" in run().problems[0]

    def test_the_other_hooks_are_asked_all_the_same(self, served, settings):
        other = "/orgs/octo/hooks/7"
        hooks = [{"repo": "octo/gone", "hook_id": 1}, {"org": "octo", "hook_id": 7}]
        configure(settings, served, {"HOOKS": hooks})
        event = served.happen()
        served.note(other, event, 502)
        (recovery,) = recoveries()
        gone, here = recover(recovery)
        served.wait()
        assert gone.problems
        assert counts(here) == {"found": 1, "redelivered": 1}
        assert WebhookEvent.objects.get().scope == "7"


class TestApp:
    @pytest.fixture
    def key(self, served, settings):
        jwt = pytest.importorskip("jwt")
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        private = rsa.generate_private_key(65537, 2048)
        pem = private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        ).decode()

        def knows(token: str) -> bool:
            claims = jwt.decode(token, private.public_key(), algorithms=["RS256"])
            return bool(claims["iss"] == "9")

        served.knows_app = knows
        served.tokens.clear()
        return pem

    def test_its_own_hook(self, served, settings, run, key):
        """The number of the hook stands in what its deliveries carried."""
        entries = {"HOOKS": [{"app": True}], "TOKEN": None, "APP_ID": 9, "PRIVATE_KEY": key}
        configure(settings, served, entries)
        served.note("/app/hook", served.happen(), 500)
        served.note("/app/hook", served.happen(), 500)
        assert counts(run()) == {"found": 2, "redelivered": 2}
        assert set(WebhookEvent.objects.values_list("scope", flat=True)) == {str(APP_HOOK)}
        assert counts(run()) == {"found": 2, "processed": 2}

    def test_hooks_of_where_it_is_installed(self, served, settings, run, key, caplog):
        caplog.set_level(logging.DEBUG)
        configure(settings, served, {"TOKEN": None, "APP_ID": 9, "PRIVATE_KEY": lambda: key})
        lost(served)
        assert counts(run()) == {"found": 1, "redelivered": 1}
        assert ("GET", "/repos/octo/shop/installation") in served.requests
        assert "ghs_installation" not in caplog.text

    def test_a_key_that_is_none(self, served, settings, run, key, caplog):
        configure(settings, served, {"TOKEN": None, "APP_ID": 9, "PRIVATE_KEY": "no key at all"})
        report = run()
        assert "PRIVATE_KEY" in report.problems[0]
        assert "no key at all" not in caplog.text + repr(report)

    def test_an_app_that_github_does_not_know(self, served, settings, run, key):
        served.knows_app = lambda token: False
        configure(settings, served, {"TOKEN": None, "APP_ID": 9, "PRIVATE_KEY": key})
        assert "answered 401" in run().problems[0]


def test_a_scope_in_the_url(served, settings, run):
    configure(settings, served, {"HOOKS": [{"repo": "octo/shop", "hook_id": 42, "scope": "acme"}]})
    served.target += "acme/"
    lost(served)
    assert counts(run()) == {"found": 1, "redelivered": 1}
    assert WebhookEvent.objects.get().scope == "acme/42"
    assert counts(run()) == {"found": 1, "processed": 1}


def test_the_log_of_a_run_without_news_is_quiet(served, run, caplog):
    caplog.set_level(logging.INFO)
    lost(served)
    run().log()
    assert "webhook recovery: source=github repos/octo/shop/hooks/42 found=1" in caplog.text
    assert "redelivered=1" in caplog.text
    caplog.clear()
    run().log()
    assert "webhook recovery" not in caplog.text
