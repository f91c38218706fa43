"""Events of one ordering key: in sequence and never two at once, and nobody else waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.dispatch.claims import Claim
from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import give_back, run_claim
from django_webhook_idempotency.dispatch.queued_run import QueuedRun
from django_webhook_idempotency.dispatch.work import Result
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.exceptions import Ignore, Reject, Retry
from django_webhook_idempotency.handlers import registry
from django_webhook_idempotency.models import (
    HandlerRun,
    HandlerTurn,
    OrderingKey,
    WebhookEvent,
)
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def rare_retries(configure: Callable[..., None]) -> None:
    """Let a failed event wait until the test says so: a back-off may also be no wait at all."""
    configure(BACKOFF=timedelta(days=1), BACKOFF_MAX=timedelta(days=1))


class Log:
    """A handler that notes its events and fails when it is told to."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.errors: dict[str, list[Exception]] = {}

    def __call__(self, event: WebhookEvent) -> None:
        self.seen.append(event.event_id)
        left = self.errors.get(event.event_id)
        if left:
            raise left.pop(0)


@pytest.fixture
def log(handlers: Any) -> Log:
    """Give a handler whose events are ordered by the payload's object.id."""
    handler = Log()
    handlers.add(handler, name="h", ordering_key="object.id")
    return handler


@pytest.fixture
def send(client: Client) -> Callable[..., WebhookEvent]:
    """Give a function that delivers events of a key."""

    def deliver_of(event_id: str, key: Any = "k", **more: Any) -> WebhookEvent:
        answer = deliver(client, "stripe", event_id, object={"id": key}, **more)
        assert answer.status_code == 202, answer.content
        return WebhookEvent.objects.get(event_id=event_id, provider="stripe")

    return deliver_of


def claim(event: WebhookEvent) -> Claim:
    """Claim one event, whoever's turn it is."""
    others = WebhookEvent.objects.filter(lane__isnull=False).exclude(pk=event.pk)
    kept = dict(others.values_list("pk", "next_attempt_at"))
    others.update(next_attempt_at=timezone.now() + timedelta(days=1))
    WebhookEvent.objects.filter(pk=event.pk).update(next_attempt_at=timezone.now())
    claimed = Rotation().claim()
    for pk, at in kept.items():
        WebhookEvent.objects.filter(pk=pk).update(next_attempt_at=at)
    assert claimed is not None
    assert claimed.event.pk == event.pk
    return claimed


def status(event: WebhookEvent) -> str:
    return WebhookEvent.objects.get(pk=event.pk).status


def wait(event: WebhookEvent) -> timedelta:
    """How long until the event is due."""
    at = WebhookEvent.objects.get(pk=event.pk).next_attempt_at
    assert at is not None
    return at - timezone.now()


class TestSequence:
    def test_in_the_order_in_which_they_came(
        self, send: Any, log: Log, drain: Callable[[], int]
    ) -> None:
        for number in range(5):
            send(f"e{number}")
        drain()
        assert log.seen == [f"e{number}" for number in range(5)]
        assert not HandlerTurn.objects.exists()
        assert OrderingKey.objects.get().holder is None

    def test_a_younger_one_waits_at_no_cost(
        self, send: Any, log: Log, drain: Callable[[], int]
    ) -> None:
        first, second = send("e1"), send("e2")
        run_claim(claim(second))
        assert log.seen == []
        second.refresh_from_db()
        assert (second.status, second.attempts, second.last_error) == (EventStatus.PENDING, 0, "")
        assert timedelta(seconds=4) < wait(second) <= timedelta(seconds=5)
        run_claim(claim(first))
        assert wait(second) <= timedelta(0)
        drain()
        assert log.seen == ["e1", "e2"]
        assert status(second) == EventStatus.PROCESSED
        assert not HandlerRun.objects.exists()

    @pytest.mark.parametrize(
        ("age", "expected"), [(1, 5), (60, 60), (3600, 300)], ids=["new", "old", "oldest"]
    )
    def test_the_older_the_rarer_it_looks(
        self, send: Any, log: Log, age: int, expected: int
    ) -> None:
        send("e1")
        second = send("e2")
        received = timezone.now() - timedelta(seconds=age)
        WebhookEvent.objects.filter(pk=second.pk).update(received_at=received)
        run_claim(claim(second))
        assert abs(wait(second).total_seconds() - expected) < 2

    def test_nor_does_a_long_queue_look_all_the_time(
        self, send: Any, log: Log, monkeypatch: Any
    ) -> None:
        """Each looks the rarer, the more are ahead of it; it would be called anyway."""
        monkeypatch.setattr(
            "django_webhook_idempotency.dispatch.places.WAIT_FOR_EACH", timedelta(seconds=100)
        )
        events = [send(f"e{number}") for number in range(6)]
        waits = [round(wait(event).total_seconds(), -1) for event in events]
        assert waits == [0, 100, 200, 300, 300, 300]
        run_claim(claim(events[2]))
        assert round(wait(events[2]).total_seconds(), -1) == 200

    def test_a_failing_one_holds_back_its_own_key_and_no_other(
        self, send: Any, log: Log, drain: Callable[[], int], later: Callable[..., None]
    ) -> None:
        log.errors["a1"] = [ValueError(), ValueError()]
        for event_id in ("a1", "b1", "a2", "b2"):
            send(event_id, event_id[0])
        drain()
        assert log.seen == ["a1", "b1", "b2"]
        later(event_id="a1")
        drain()
        later(event_id="a2")
        drain()
        assert log.seen == ["a1", "b1", "b2", "a1"]
        later(event_id="a1")
        drain()
        assert log.seen == ["a1", "b1", "b2", "a1", "a1", "a2"]

    @pytest.mark.parametrize("error", [Reject("never"), Ignore()])
    def test_one_that_is_given_up_holds_back_nobody(
        self, send: Any, log: Log, drain: Callable[[], int], error: Exception
    ) -> None:
        log.errors["e1"] = [error]
        send("e1")
        send("e2")
        drain()
        assert log.seen == ["e1", "e2"]
        assert not HandlerTurn.objects.exists()

    def test_a_dead_one_that_is_sent_again_comes_first(
        self, send: Any, log: Log, drain: Callable[[], int]
    ) -> None:
        log.errors["e1"] = [Reject()]
        first = send("e1")
        drain()
        second = send("e2")
        send("e1")
        WebhookEvent.objects.filter(pk=second.pk).update(next_attempt_at=timezone.now())
        drain()
        assert log.seen == ["e1", "e1", "e2"]
        assert status(first) == EventStatus.PROCESSED

    @pytest.mark.parametrize("atomic", [True, False])
    def test_one_that_keeps_killing_its_worker_is_dead_and_lets_the_next_in(
        self,
        send: Any,
        handlers: Any,
        drain: Callable[[], int],
        later: Callable[..., None],
        configure: Any,
        atomic: bool,
    ) -> None:
        configure(MAX_ATTEMPTS=2)
        log = Log()
        handlers.add(log, ordering_key="object.id", atomic=atomic)
        first = send("e1")
        second = send("e2")
        for _ in range(2):
            claim(first)
            WebhookEvent.objects.filter(pk=first.pk).update(
                lease_expires_at=timezone.now(), next_attempt_at=timezone.now()
            )
        run_claim(claim(second))
        assert log.seen == []
        drain()
        assert (status(first), log.seen) == (EventStatus.DEAD, ["e2"])

    def test_a_retry_that_is_asked_for_is_not_brought_forward(
        self, send: Any, log: Log, drain: Callable[[], int]
    ) -> None:
        log.errors["e1"] = [Retry(after=3600)]
        first = send("e1")
        send("e2")
        drain()
        assert wait(first) > timedelta(minutes=59)
        send("e3")
        drain()
        assert wait(first) > timedelta(minutes=59)
        assert log.seen == ["e1"]

    def test_nor_by_a_younger_one_that_is_given_up(
        self, send: Any, log: Log, drain: Callable[[], int], configure: Any
    ) -> None:
        """Whoever calls the next of a key does not mean one that waits for its own retry."""
        log.errors["e1"] = [Retry(after=3600)]
        first = send("e1")
        drain()
        configure(MAX_ATTEMPTS=1)
        second = send("e2")
        claim(second)
        WebhookEvent.objects.filter(pk=second.pk).update(
            lease_expires_at=timezone.now(), next_attempt_at=timezone.now()
        )
        drain()
        assert status(second) == EventStatus.DEAD
        assert wait(first) > timedelta(minutes=59)

    @pytest.mark.parametrize("error", [None, Reject()])
    def test_the_turn_of_a_handler_that_is_gone_goes_with_the_event(
        self, send: Any, log: Log, handlers: Any, drain: Callable[[], int], error: Any
    ) -> None:
        send("e1")
        registry.remove(log)
        new = Log()
        new.errors["e1"] = [error] if error else []
        handlers.add(new, name="renamed", ordering_key="object.id")
        drain()
        assert new.seen == ["e1"]
        assert not HandlerTurn.objects.exists()


class TestKeys:
    def test_scopes_and_providers_share_no_key(
        self, client: Client, log: Log, drain: Callable[[], int]
    ) -> None:
        """Two tenants may have the same ids."""
        log.errors["e1"] = [ValueError()]
        deliver(client, "stripe", "e1", object={"id": 1}, path="/webhooks/stripe/t1/")
        deliver(client, "stripe", "e2", object={"id": 1}, path="/webhooks/stripe/t2/")
        deliver(client, "sangho", "e3", object={"id": 1})
        drain()
        assert sorted(log.seen) == ["e1", "e2", "e3"]
        assert OrderingKey.objects.count() == 3

    def test_a_number_and_its_text_are_one_key(
        self, send: Any, log: Log, drain: Callable[[], int]
    ) -> None:
        send("e1", 7)
        send("e2", "7")
        drain()
        assert OrderingKey.objects.count() == 1

    @pytest.mark.parametrize("key", [None, ""])
    def test_without_one_there_is_no_order(
        self, send: Any, log: Log, drain: Callable[[], int], key: Any
    ) -> None:
        log.errors["e1"] = [ValueError()]
        send("e1", key)
        send("e2", key)
        drain()
        assert log.seen == ["e1", "e2"]
        assert not OrderingKey.objects.exists()

    def test_paths_lead_into_lists_and_nowhere(
        self, client: Client, handlers: Any, drain: Callable[[], int]
    ) -> None:
        for path in ("items.1.id", "items.9.id", "items.id", "items.0.id.x", "object.items"):
            handlers.add(lambda event: None, name=path, ordering_key=path)
        deliver(client, "stripe", items=[{"id": "a"}, {"id": "b"}], object={"items": "c"})
        assert HandlerTurn.objects.count() == 2
        drain()
        assert OrderingKey.objects.count() == 2

    def test_a_function_says(self, client: Client, handlers: Any, drain: Callable[[], int]) -> None:
        async def key(event: WebhookEvent) -> str:
            return str(event.data["a"] + event.data["b"])

        log = Log()
        log.errors["e1"] = [ValueError()]
        handlers.add(log, ordering_key=key)
        deliver(client, "stripe", "e1", a=1, b=2)
        deliver(client, "stripe", "e2", a=2, b=1)
        deliver(client, "stripe", "e3", a=2, b=2)
        drain()
        assert log.seen == ["e1", "e3"]

    @pytest.mark.parametrize("key", [{"a": 1}, ["a"], True])
    def test_one_that_cannot_be_read_fails_in_the_run(
        self, send: Any, log: Log, drain: Callable[[], int], key: Any
    ) -> None:
        """The event is stored and answered all the same."""
        event = send("e1", key)
        drain()
        event.refresh_from_db()
        assert (event.status, event.attempts, log.seen) == (EventStatus.FAILED, 1, [])
        assert "OrderingError: The ordering key of h is of type" in event.last_error
        assert HandlerRun.objects.get().error_class == "OrderingError"

    def test_a_function_that_raises_fails_in_the_run(
        self, client: Client, handlers: Any, drain: Callable[[], int]
    ) -> None:
        handlers.add(Log(), ordering_key=lambda event: event.data["absent"])
        assert deliver(client, "stripe").status_code == 202
        drain()
        assert "KeyError" in WebhookEvent.objects.get().last_error


class TestTurns:
    def test_an_event_that_has_none_gets_one_when_it_runs(
        self, send: Any, log: Log, drain: Callable[[], int]
    ) -> None:
        """The handler is newer than the event, or it failed in a request."""
        first, second = send("e1"), send("e2")
        HandlerTurn.objects.all().delete()
        log.errors["e1"] = [ValueError()]
        run_claim(claim(first))
        assert HandlerTurn.objects.get().event_id == first.pk
        run_claim(claim(second))
        assert log.seen == ["e1"]

    def test_an_older_one_that_commits_later_is_never_beside_a_younger_one(
        self, send: Any, handlers: Any, drain: Callable[[], int]
    ) -> None:
        """A lower primary key can become visible after a higher one has begun to run."""
        log = Log()
        hidden: list[dict[str, Any]] = []

        def handler(event: WebhookEvent) -> None:
            log(event)
            if event.event_id == "e2":
                # Now e1 commits, and another worker takes it at once.
                WebhookEvent.objects.filter(pk=first.pk).update(**hidden[0])
                HandlerTurn.objects.create(event=first, key=turn.key)
                run_claim(claim(first))
                log.seen.append("e2 ends")

        handlers.add(handler, ordering_key="object.id", atomic=False)
        first = send("e1")
        turn = HandlerTurn.objects.get()
        second = send("e2")
        hidden.append({"lane": first.lane, "next_attempt_at": first.next_attempt_at})
        WebhookEvent.objects.filter(pk=first.pk).update(lane=None)
        turn.delete()
        run_claim(claim(second))
        assert log.seen == ["e2", "e2 ends"]
        assert (status(first), wait(first) <= timedelta(0)) == (EventStatus.PENDING, True)
        drain()
        assert log.seen == ["e2", "e2 ends", "e1"]

    def test_a_holder_that_was_killed_gives_way_when_it_is_claimed_again(
        self, send: Any, log: Log, drain: Callable[[], int]
    ) -> None:
        """The stalled worker could wake: only a fresh token on its event keeps it out."""
        first, second = send("e1"), send("e2")
        turn = HandlerTurn.objects.get(event=first)
        lane = first.lane
        WebhookEvent.objects.filter(pk=first.pk).update(lane=None)
        turn.delete()
        stalled = claim(second)
        OrderingKey.objects.create(key=turn.key, provider="stripe", holder=second.pk)
        WebhookEvent.objects.filter(pk=first.pk).update(lane=lane)
        WebhookEvent.objects.filter(pk=second.pk).update(
            lease_expires_at=timezone.now() - timedelta(seconds=1)
        )
        run_claim(claim(first))
        assert log.seen == []
        WebhookEvent.objects.filter(pk=second.pk).update(next_attempt_at=timezone.now())
        run_claim(claim(second))
        assert log.seen == []
        assert wait(first) <= timedelta(0)
        run_claim(stalled)
        drain()
        assert log.seen == ["e1", "e2"]

    def test_called_while_it_gives_up_waiting(
        self, send: Any, handlers: Any, drain: Callable[[], int]
    ) -> None:
        """The one before ends just when the next has decided to wait."""
        log, other = Log(), Log()

        def meanwhile(event: WebhookEvent) -> None:
            other(event)
            if event.event_id == "e2":
                run_claim(claim(first))

        handlers.add(log, ordering_key="object.id", name="a")
        handlers.add(meanwhile, name="b", atomic=False)
        first, second = send("e1"), send("e2")
        run_claim(claim(second))
        assert log.seen == ["e1"]
        assert wait(second) <= timedelta(0)
        drain()
        assert log.seen == ["e1", "e2"]
        assert sorted(other.seen) == ["e1", "e2"]

    def test_one_that_is_given_back_by_its_worker_keeps_its_turn(
        self, send: Any, log: Log, drain: Callable[[], int]
    ) -> None:
        first, second = send("e1"), send("e2")
        assert give_back(claim(first))
        run_claim(claim(second))
        assert log.seen == []
        drain()
        assert log.seen == ["e1", "e2"]

    def test_turns_that_a_finished_event_left_hold_nobody(
        self, send: Any, log: Log, drain: Callable[[], int]
    ) -> None:
        """It was finished in a request, say, or its handler had no order for a while."""
        first = send("e1")
        drain()
        send("e2")
        HandlerTurn.objects.create(event=first, key=HandlerTurn.objects.get().key)
        drain()
        assert log.seen == ["e1", "e2"]


class TestReceipt:
    def test_what_comes_behind_another_one_troubles_no_worker(
        self, send: Any, log: Log, drain: Callable[[], int]
    ) -> None:
        log.errors["e1"] = [Retry(after=3600)]
        send("e1")
        second = send("e2")
        assert timedelta(seconds=3) < wait(second) <= timedelta(seconds=5)
        assert drain() == 1
        assert HandlerTurn.objects.get(event=second).waiting

    @pytest.mark.parametrize("ordering_key", ["free", None])
    def test_but_it_is_due_if_another_handler_can_run(
        self, client: Client, log: Log, handlers: Any, ordering_key: Any
    ) -> None:
        handlers.add(lambda event: None, ordering_key=ordering_key)
        for event_id in ("e1", "e2"):
            deliver(client, "stripe", event_id, object={"id": 1}, free=event_id)
        assert wait(WebhookEvent.objects.get(event_id="e2")) <= timedelta(0)

    @pytest.mark.only_on("postgresql", "mysql")
    def test_the_one_before_it_ends_while_it_is_stored(
        self, send: Any, log: Log, drain: Callable[[], int]
    ) -> None:
        """It was seen undone, and it does not see the one that is not committed yet."""
        claimed = claim(send("e1"))
        ended: list[threading.Thread] = []

        def run() -> None:
            try:
                run_claim(claimed)
            finally:
                connections.close_all()

        def meanwhile(execute: Any, sql: str, *rest: Any) -> Any:
            if "handlerturn" in sql and sql.startswith("INSERT") and not ended:
                ended.append(threading.Thread(target=run))
                ended[0].start()
                ended[0].join(20)
            return execute(sql, *rest)

        with connection.execute_wrapper(meanwhile):
            second = send("e2")
        assert ended and log.seen == ["e1"]
        assert wait(second) <= timedelta(0)
        drain()
        assert log.seen == ["e1", "e2"]


class TestSeveralHandlers:
    def test_each_waits_for_itself(
        self, client: Client, handlers: Any, drain: Callable[[], int], later: Callable[..., None]
    ) -> None:
        by_a, by_b, free = Log(), Log(), Log()
        by_a.errors["e1"] = [ValueError()]
        handlers.add(by_a, ordering_key="a", name="a", atomic=False)
        handlers.add(by_b, ordering_key="b", name="b")
        handlers.add(free, name="free")
        deliver(client, "stripe", "e1", a=1, b=1)
        deliver(client, "stripe", "e2", a=1, b=2)
        drain()
        assert (by_a.seen, by_b.seen, free.seen) == (["e1"], ["e1", "e2"], ["e1", "e2"])
        second = WebhookEvent.objects.get(event_id="e2")
        assert (second.status, second.last_error) == (EventStatus.PENDING, "")
        later(event_id="e1")
        drain()
        assert (by_a.seen, by_b.seen, free.seen) == (
            ["e1", "e1", "e2"],
            ["e1", "e2"],
            ["e1", "e2"],
        )
        assert status(second) == EventStatus.PROCESSED
        assert not HandlerTurn.objects.exists()

    def test_one_that_failed_keeps_its_retry_when_the_others_turn_comes(
        self, send: Any, handlers: Any, drain: Callable[[], int], later: Callable[..., None]
    ) -> None:
        """Retry(after=...) means not before, whoever calls the event meanwhile."""
        ordered, limited = Log(), Log()
        limited.errors["e2"] = [Retry(after=3600)]
        handlers.add(ordered, ordering_key="object.id", name="a")
        handlers.add(limited, name="b")
        first, second, third = send("e1"), send("e2"), send("e3")
        run_claim(claim(second))
        assert (ordered.seen, limited.seen) == ([], ["e2"])
        assert wait(second) <= timedelta(seconds=5)
        run_claim(claim(third))
        run_claim(claim(first))
        drain()
        assert ordered.seen == ["e1", "e2", "e3"]
        assert limited.seen == ["e2", "e3", "e1"]
        second.refresh_from_db()
        assert (second.status, wait(second) > timedelta(minutes=59)) == (EventStatus.FAILED, True)
        assert second.attempts == 2
        later(event_id="e2")
        drain()
        assert limited.seen[-1] == "e2"
        assert status(second) == EventStatus.PROCESSED

    def test_what_one_does_to_the_payload_changes_no_others_order(
        self, send: Any, handlers: Any, drain: Callable[[], int]
    ) -> None:
        log = Log()
        log.errors["e1"] = [Retry(after=3600)]
        handlers.add(lambda event: event.data.clear(), name="careless")
        handlers.add(log, name="ordered", ordering_key="object.id")
        send("e1")
        send("e2")
        drain()
        assert log.seen == ["e1"]

    def test_a_stalled_worker_changes_no_rest(
        self, send: Any, handlers: Any, later: Callable[..., None], monkeypatch: Any
    ) -> None:
        """It stalls before it writes the end of its attempt; the event is somebody else's then."""
        ordered, limited = Log(), Log()
        limited.errors["e2"] = [Retry(after=timedelta(days=30)), Retry(after=3600)]
        handlers.add(ordered, ordering_key="object.id", name="a")
        handlers.add(limited, name="b")
        send("e1")
        second = send("e2")
        stalled, settle = [claim(second)], QueuedRun.settle

        def stall(self: QueuedRun) -> Result:
            if stalled:
                stalled.clear()
                later(event_id="e2")
                run_claim(claim(second))
            return settle(self)

        monkeypatch.setattr(QueuedRun, "settle", stall)
        run_claim(stalled[0])
        assert limited.seen == ["e2", "e2"]
        others_at = HandlerTurn.objects.get(event=second).others_at
        assert others_at is not None
        assert others_at - timezone.now() < timedelta(hours=2)

    def test_a_redelivery_ends_that_rest(
        self, send: Any, handlers: Any, drain: Callable[[], int]
    ) -> None:
        """Somebody who presses Resend wants every handler to run now."""
        ordered, limited = Log(), Log()
        limited.errors["e2"] = [Retry(after=3600)]
        handlers.add(ordered, ordering_key="object.id", name="a")
        handlers.add(limited, name="b")
        send("e1")
        second = send("e2")
        run_claim(claim(second))
        send("e2")
        run_claim(claim(second))
        assert (ordered.seen, limited.seen) == ([], ["e2", "e2"])
