"""The queue's path of one event: stored, run by a worker, tried again, finished or dead."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.dispatch import lanes, sources
from django_webhook_idempotency.dispatch.claims import Claim
from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import give_back, run_claim
from django_webhook_idempotency.enums import EventStatus, Outcome
from django_webhook_idempotency.exceptions import Ignore, Reject, Retry
from django_webhook_idempotency.handlers import registry
from django_webhook_idempotency.models import HandlerRun, WebhookDelivery, WebhookEvent
from tests.app.models import Effect
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)


def effect(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id)


class Faulty:
    """Writes its effect, then raises what it is given, one after the other."""

    def __init__(self, *errors: BaseException | None, name: str = "") -> None:
        self.errors = list(errors)
        self.name = name
        self.calls = 0

    def __call__(self, event: WebhookEvent) -> None:
        self.calls += 1
        Effect.objects.create(event_id=event.event_id, name=self.name)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error


def stored() -> WebhookEvent:
    return WebhookEvent.objects.get()


class TestReceipt:
    def test_is_answered_before_the_handler_runs(self, client: Client, handlers: Any) -> None:
        """WB-011, WB-077: 202 once the rows are committed."""
        handlers.add(effect)
        answer = deliver(client, "stripe")
        assert (answer.status_code, answer.json()) == (
            202,
            {"status": "accepted", "event": "evt_1"},
        )
        assert Effect.objects.count() == 0
        assert stored().status == EventStatus.PENDING
        assert WebhookDelivery.objects.get().outcome == Outcome.ACCEPTED

    def test_slack_wants_exactly_200(self, client: Client, handlers: Any) -> None:
        handlers.add(effect)
        assert deliver(client, "slack").status_code == 200

    def test_a_copy_is_a_duplicate_before_and_after_the_run(
        self, client: Client, handlers: Any, drain: Callable[[], int]
    ) -> None:
        handlers.add(effect)
        deliver(client, "stripe")
        assert deliver(client, "stripe").json()["status"] == "duplicate"
        assert drain() == 1
        assert deliver(client, "stripe").json()["status"] == "duplicate"
        assert drain() == 0
        assert Effect.objects.count() == 1

    def test_what_nobody_wants_is_ignored_at_once(self, client: Client) -> None:
        assert deliver(client, "stripe").json()["status"] == "ignored"
        assert stored().lane is None

    @pytest.mark.parametrize("error", [ValueError("no"), Reject("never")])
    def test_a_redelivery_lets_a_failed_event_run_at_once(
        self, client: Client, handlers: Any, drain: Callable[[], int], error: Exception
    ) -> None:
        """Promise 5, for the person who presses Resend after the repair."""
        handlers.add(Faulty(error))
        deliver(client, "github")
        assert drain() == 1
        answer = deliver(client, "github")
        assert (answer.status_code, answer.json()["status"]) == (202, "accepted")
        assert drain() == 1
        assert stored().status == EventStatus.PROCESSED
        assert Effect.objects.count() == 1

    def test_the_cap_refuses_new_events_and_no_copies(
        self, client: Client, handlers: Any, drain: Callable[[], int], configure: Any
    ) -> None:
        configure(MAX_PENDING=2)
        handlers.add(effect)
        assert [deliver(client, "stripe", f"evt_{n}").status_code for n in range(2)] == [202, 202]
        refused = deliver(client, "stripe", "evt_2")
        assert refused.status_code == 503
        assert refused.headers["Retry-After"]
        assert deliver(client, "stripe", "evt_0").status_code == 200
        assert deliver(client, "sangho", "evt_0").status_code == 202
        assert WebhookEvent.objects.count() == 3
        drain()
        assert deliver(client, "stripe", "evt_2").status_code == 202


class TestRun:
    def test_an_atomic_handler_commits_with_its_event(
        self, client: Client, handlers: Any, drain: Callable[[], int]
    ) -> None:
        handlers.add(effect, name="h")
        deliver(client, "stripe")
        assert drain() == 1
        event = stored()
        assert (event.status, event.handled_by, event.attempts) == (EventStatus.PROCESSED, "h", 1)
        assert (event.lane, event.next_attempt_at, event.lease_token) == (None, None, "")
        assert event.processed_at is not None
        assert Effect.objects.count() == 1
        assert HandlerRun.objects.count() == 0

    @pytest.mark.parametrize("atomic", [True, False])
    def test_a_failure_is_tried_again_until_it_works(
        self,
        client: Client,
        handlers: Any,
        drain: Callable[[], int],
        later: Callable[..., None],
        atomic: bool,
    ) -> None:
        handlers.add(Faulty(ValueError("one"), ValueError("two")), atomic=atomic)
        deliver(client, "stripe")
        for _ in range(2):
            drain()
            assert stored().status == EventStatus.FAILED
            later()
        drain()
        assert (stored().status, stored().attempts) == (EventStatus.PROCESSED, 3)
        assert stored().last_error == ""
        assert Effect.objects.count() == (1 if atomic else 3)
        errors = HandlerRun.objects.order_by("number").values_list("number", "error_message")
        assert list(errors) == [(1, "one"), (2, "two"), (3, "")]

    def test_attempts_that_are_used_up_end_in_a_dead_letter(
        self,
        client: Client,
        handlers: Any,
        drain: Callable[[], int],
        later: Callable[..., None],
        configure: Any,
    ) -> None:
        configure(MAX_ATTEMPTS=2)
        handlers.add(Faulty(*[ValueError()] * 9))
        deliver(client, "stripe")
        for _ in range(4):
            drain()
            later()
        assert (stored().status, stored().attempts) == (EventStatus.DEAD, 2)
        assert stored().lane is None
        assert Effect.objects.count() == 0

    def test_each_handler_has_its_own_number_of_attempts(
        self, client: Client, handlers: Any, drain: Callable[[], int], later: Callable[..., None]
    ) -> None:
        few, many = Faulty(*[ValueError()] * 9), Faulty(*[ValueError()] * 3)
        handlers.add(few, name="few", max_attempts=2)
        handlers.add(many, name="many")
        deliver(client, "stripe")
        for _ in range(6):
            drain()
            later()
        assert (few.calls, many.calls) == (2, 4)
        assert stored().status == EventStatus.DEAD

    def test_a_rejecting_handler_is_left_alone_while_another_retries(
        self, client: Client, handlers: Any, drain: Callable[[], int], later: Callable[..., None]
    ) -> None:
        never, soon = Faulty(Reject()), Faulty(ValueError())
        handlers.add(never)
        handlers.add(soon)
        deliver(client, "stripe")
        drain()
        assert stored().status == EventStatus.FAILED
        later()
        drain()
        assert (never.calls, soon.calls) == (1, 2)
        assert stored().status == EventStatus.DEAD

    def test_one_handlers_failure_repeats_no_other(
        self, client: Client, handlers: Any, drain: Callable[[], int], later: Callable[..., None]
    ) -> None:
        """Promise 11."""
        good, bad = Faulty(name="good"), Faulty(ValueError(), name="bad")
        last = Faulty(name="last")
        for number, one in enumerate((good, bad, last)):
            handlers.add(one, name=f"h{number}", atomic=number != 2)
        deliver(client, "stripe")
        drain()
        later()
        drain()
        assert stored().status == EventStatus.PROCESSED
        assert sorted(Effect.objects.values_list("name", flat=True)) == ["bad", "good", "last"]
        assert (good.calls, bad.calls, last.calls) == (1, 2, 1)

    def test_a_rejection_of_ones_own_kind_is_for_good(
        self, client: Client, handlers: Any, drain: Callable[[], int], later: Callable[..., None]
    ) -> None:
        """Also beside a handler whose retry runs the event again."""

        class OrderGone(Reject):
            pass

        rejecting, failing = Faulty(OrderGone("no order")), Faulty(ValueError("first"))
        handlers.add(rejecting)
        handlers.add(failing)
        deliver(client, "stripe")
        drain()
        later()
        drain()
        assert (rejecting.calls, failing.calls) == (1, 2)
        assert stored().status == EventStatus.DEAD
        assert HandlerRun.objects.filter(error_class="Reject: OrderGone").count() == 1

    def test_a_strangers_error_of_that_name_is_a_failure_as_any_other(
        self, client: Client, handlers: Any, drain: Callable[[], int], later: Callable[..., None]
    ) -> None:
        stranger = type("Reject", (Exception,), {"__module__": "celery.exceptions"})
        one = Faulty(stranger("requeue"))
        handlers.add(one)
        deliver(client, "stripe")
        drain()
        assert stored().last_error == "celery.exceptions.Reject: requeue"
        later()
        drain()
        assert (stored().status, one.calls) == (EventStatus.PROCESSED, 2)

    def test_a_handler_says_when_to_try_again(
        self, client: Client, handlers: Any, drain: Callable[[], int]
    ) -> None:
        handlers.add(Faulty(Retry(after=timedelta(hours=2))))
        deliver(client, "stripe")
        drain()
        wait = (stored().next_attempt_at or timezone.now()) - timezone.now()
        assert timedelta(minutes=119) < wait <= timedelta(hours=2)

    def test_a_handler_may_ignore_it(
        self, client: Client, handlers: Any, drain: Callable[[], int]
    ) -> None:
        handlers.add(Faulty(Ignore()))
        deliver(client, "stripe")
        drain()
        assert (stored().status, stored().lane) == (EventStatus.IGNORED, None)
        assert Effect.objects.count() == 0

    def test_settings_that_cannot_be_used_cost_no_attempt(
        self,
        client: Client,
        handlers: Any,
        drain: Callable[[], int],
        later: Callable[..., None],
        configure: Any,
        settings: Any,
    ) -> None:
        handlers.add(effect)
        deliver(client, "stripe")
        right = settings.WEBHOOK_IDEMPOTENCY
        configure(NONSENSE=1)
        drain()
        assert (stored().status, stored().attempts) == (EventStatus.PENDING, 0)
        assert "NONSENSE" in stored().last_error
        settings.WEBHOOK_IDEMPOTENCY = right
        later()
        drain()
        assert stored().status == EventStatus.PROCESSED

    def test_an_event_whose_handler_a_worker_does_not_know_waits_for_it(
        self,
        client: Client,
        handlers: Any,
        drain: Callable[[], int],
        later: Callable[..., None],
        caplog: Any,
    ) -> None:
        """A deployment in which old workers meet events of new code."""
        handlers.add(effect)
        deliver(client, "stripe")
        registry.remove(effect)
        drain()
        assert (stored().status, stored().attempts) == (EventStatus.PENDING, 0)
        assert "No handler is registered" in stored().last_error
        assert [line.levelname for line in caplog.records] == ["CRITICAL"]
        handlers.add(effect)
        later()
        drain()
        assert (stored().status, Effect.objects.count()) == (EventStatus.PROCESSED, 1)


class TestClaim:
    def test_an_abandoned_event_runs_again_when_its_lease_has_run_out(
        self, client: Client, handlers: Any, later: Callable[..., None], drain: Callable[[], int]
    ) -> None:
        """WB-017."""
        handlers.add(effect)
        deliver(client, "stripe")
        lost = Rotation().claim()
        assert drain() == 0
        later()
        assert drain() == 1
        assert stored().attempts == 2
        run_claim(lost)
        assert Effect.objects.count() == 1
        assert stored().status == EventStatus.PROCESSED

    @pytest.mark.parametrize("atomic", [True, False])
    def test_a_stalled_worker_cannot_finish(
        self, client: Client, handlers: Any, later: Callable[..., None], atomic: bool
    ) -> None:
        handlers.add(effect, atomic=atomic)
        deliver(client, "stripe")
        stalled = Rotation().claim()
        later()
        second = Rotation().claim()
        run_claim(stalled)
        assert (stored().status, stored().lease_token) == (EventStatus.PROCESSING, second.token)
        assert HandlerRun.objects.count() == 0
        assert Effect.objects.count() == (0 if atomic else 1)
        run_claim(second)
        assert stored().status == EventStatus.PROCESSED

    def test_a_worker_that_stalled_before_its_handler_does_not_call_it(
        self,
        client: Client,
        handlers: Any,
        later: Callable[..., None],
        drain: Callable[[], int],
        configure: Any,
    ) -> None:
        """What an atomic=False handler does elsewhere, no fence undoes."""
        configure(LEASE=timedelta(seconds=0.6))
        handlers.add(effect, atomic=False)
        deliver(client, "stripe")
        stalled = Rotation().claim()
        later()
        drain()
        time.sleep(0.25)
        assert run_claim(stalled).outcome == Outcome.DUPLICATE
        assert Effect.objects.count() == 1

    def test_what_ends_its_worker_each_time_is_buried(
        self,
        client: Client,
        handlers: Any,
        later: Callable[..., None],
        configure: Any,
        drain: Callable[[], int],
    ) -> None:
        configure(MAX_ATTEMPTS=3)
        handlers.add(effect)
        deliver(client, "stripe")
        for _ in range(3):
            assert Rotation().claim() is not None
            later()
        drain()
        assert (stored().status, stored().attempts) == (EventStatus.DEAD, 3)
        assert "WorkerLost" in stored().last_error
        assert Effect.objects.count() == 0
        deliver(client, "stripe")
        drain()
        assert stored().status == EventStatus.PROCESSED

    def test_what_is_given_back_costs_no_attempt(
        self, client: Client, handlers: Any, drain: Callable[[], int]
    ) -> None:
        handlers.add(effect)
        deliver(client, "stripe")
        claim = Rotation().claim()
        assert give_back(claim)
        assert (stored().status, stored().attempts) == (EventStatus.PENDING, 0)
        assert not give_back(claim)
        assert drain() == 1

    def test_a_failed_event_of_a_request_is_run_by_a_worker(
        self,
        client: Client,
        handlers: Any,
        configure: Any,
        drain: Callable[[], int],
        later: Callable[..., None],
    ) -> None:
        """GitHub sends nothing twice by itself."""
        configure(PROCESSING="inline")
        handlers.add(Faulty(ValueError()))
        assert deliver(client, "github").status_code == 500
        later()
        assert drain() == 1
        assert stored().status == EventStatus.PROCESSED
        assert Effect.objects.count() == 1


class TestTurns:
    def test_a_flood_makes_nobody_else_wait(self, client: Client, handlers: Any) -> None:
        order: list[str] = []
        handlers.add(lambda event: order.append(f"{event.provider} {event.event_id}"))
        for number in range(30):
            deliver(client, "stripe", f"evt_{number}")
        deliver(client, "sangho", "evt_a")
        deliver(client, "slack", "evt_b")
        rotation = Rotation()
        for _ in range(6):
            run_claim(rotation.claim())
        assert "sangho evt_a" in order[:3]
        assert "slack evt_b" in order[:3]
        mine = [each for each in order if each.startswith("stripe")]
        assert mine == [f"stripe evt_{number}" for number in range(len(mine))]

    def test_scopes_of_one_provider_share_too(self, client: Client, handlers: Any) -> None:
        order: list[str] = []
        handlers.add(lambda event: order.append(event.scope.partition("/")[0]))
        for number in range(20):
            deliver(client, "stripe", f"evt_{number}", path="/webhooks/stripe/loud/")
        for scope in ("Quiet", "quiet", "shy"):
            deliver(client, "stripe", "evt_0", path=f"/webhooks/stripe/{scope}/")
        rotation = Rotation()
        for _ in range(5):
            run_claim(rotation.claim())
        assert {"Quiet", "quiet", "shy"} <= set(order)

    def test_only_the_providers_asked_for(self, client: Client, handlers: Any) -> None:
        handlers.add(effect)
        deliver(client, "stripe")
        assert Rotation({"github"}).claim() is None
        assert Rotation({"stripe"}).claim() is not None

    def test_says_when_the_next_is_due(
        self, client: Client, handlers: Any, drain: Callable[[], int]
    ) -> None:
        handlers.add(Faulty(Retry(after=300)))
        deliver(client, "stripe")
        drain()
        rotation = Rotation()
        assert rotation.claim() is None
        assert rotation.next_due == stored().next_attempt_at

    def test_many_scopes(self, client: Client, handlers: Any, monkeypatch: Any) -> None:
        monkeypatch.setattr(sources, "PAGE", 3)
        monkeypatch.setattr(sources, "LEAP", 2)
        monkeypatch.setattr(lanes, "LOOK_SOURCES", 2)
        monkeypatch.setattr(lanes, "REFRESH", 0)
        handlers.add(effect)
        for number in range(10):
            deliver(client, "stripe", f"evt_{number}", path="/webhooks/stripe/loud/")
            deliver(client, "stripe", path=f"/webhooks/stripe/t{number}/")
        rotation = Rotation()
        for _ in range(20):
            run_claim(rotation.claim())
        assert Effect.objects.count() == 20
        assert rotation.claim() is None


class TestGivingBack:
    def test_a_handler_that_has_ended_is_not_run_again(
        self, client: Client, handlers: Any, drain: Callable[[], int]
    ) -> None:
        """A worker that has to stop between two handlers gives the event back."""
        handlers.add(Faulty(name="first"), name="first")
        claims: list[Claim] = []

        def stop(event: WebhookEvent) -> None:
            Effect.objects.create(event_id=event.event_id, name="second")
            if claims:
                assert give_back(claims.pop())

        handlers.add(stop, name="second", atomic=False)
        deliver(client, "stripe")
        claim = Rotation().claim()
        claims.append(claim)
        run_claim(claim)
        assert (stored().status, stored().attempts) == (EventStatus.FAILED, 1)
        assert drain() == 1
        assert stored().status == EventStatus.PROCESSED
        assert sorted(Effect.objects.values_list("name", flat=True)) == [
            "first",
            "second",
            "second",
        ]

    @pytest.mark.only_on("sqlite")
    def test_a_writer_in_the_way_costs_no_attempt(
        self, client: Client, handlers: Any, later: Callable[..., None], drain: Callable[[], int]
    ) -> None:
        handlers.add(effect)
        deliver(client, "stripe")
        claim = Rotation().claim()
        other = sqlite3.connect(connection.settings_dict["NAME"], check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.5, other.close)
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 100")
        try:
            timer.start()
            run_claim(claim)
        finally:
            timer.join()
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA busy_timeout = 20000")
        assert (stored().status, stored().attempts) == (EventStatus.PENDING, 0)
        later()
        drain()
        assert Effect.objects.count() == 1


@pytest.mark.only_on("postgresql", "mysql")
def test_events_that_somebody_locks_hide_none_behind_them(
    client: Client, handlers: Any, monkeypatch: Any
) -> None:
    """Redeliveries in requests lock the oldest events for as long as their handlers run."""
    monkeypatch.setattr("django_webhook_idempotency.dispatch.claims.CANDIDATES", 2)
    handlers.add(effect)
    for number in range(5):
        deliver(client, "stripe", f"evt_{number}")
    locked = WebhookEvent.objects.exclude(event_id="evt_4").values_list("pk", flat=True)
    other = connection.copy("default")
    with other.cursor() as cursor:
        cursor.execute("BEGIN")
        for pk in list(locked):
            cursor.execute(
                "SELECT id FROM django_webhook_idempotency_webhookevent WHERE id = %s FOR UPDATE",
                [pk],
            )
    try:
        claim = Rotation().claim()
        assert claim is not None
        assert claim.event.event_id == "evt_4"
    finally:
        other.close()
