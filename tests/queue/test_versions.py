"""Versions: what is older than the state already applied is superseded, a tie is not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from django_webhook_idempotency.dispatch.versions import MAX_VERSION, Version
from django_webhook_idempotency.enums import EventStatus, Outcome
from django_webhook_idempotency.exceptions import Ignore, OrderingError, Superseded
from django_webhook_idempotency.models import (
    HandlerRun,
    HandlerTurn,
    OrderingKey,
    WebhookDelivery,
    WebhookEvent,
)
from tests.app.models import Effect
from tests.deliveries import deliver

database = pytest.mark.django_db(transaction=True)


@pytest.mark.once
class TestOrder:
    @pytest.mark.parametrize(
        ("older", "newer"),
        [
            (9, 10),
            ("9", "10"),
            ("1355517523.000005", "1355517523.00001"),
            (1, 1.5),
            (2**53, 2**53 + 1),
            (Decimal("0.1"), Decimal("0.11")),
            (-2, "-1.5"),
            ("2026-01-09", "2026-01-10"),
            (date(2026, 1, 9), "2026-01-10"),
            ("2026-01-01T10:00:00Z", "2026-01-01T10:00:01Z"),
            ("2026-01-01T10:00:00+02:00", "2026-01-01T09:00:00Z"),
            ("2026-01-01 10:00", "2026-01-01T10:00:00.1"),
            ("2026-01-01T10:00:00.000000001Z", "2026-01-01T10:00:00.0000000011Z"),
            (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:01Z"),
            (datetime(2026, 1, 1), datetime(2026, 1, 1, microsecond=1)),
            ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.75Z"),
            ("2026-01-01T10:00:00-0130", "2026-01-01T12:00:00z"),
            ("2026-06-30T23:59:59.9Z", "2026-06-30T23:59:60Z"),
            ("2026-06-30T23:59:60Z", "2026-07-01T00:00:00.1Z"),
            ("abc", "abd"),
            ("v10", "v9"),
        ],
    )
    def test_of_one_kind(self, older: Any, newer: Any) -> None:
        first, second = Version.of(older), Version.of(newer)
        assert first.is_older_than(second)
        assert not second.is_older_than(first)
        assert Version.load(first.stored).is_older_than(Version.load(second.stored))

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (1, "1.0"),
            ("2026-01-01T10:00:00Z", "2026-01-01T12:00:00.000+02:00"),
            (datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))), "2025-12-31T23:00:00Z"),
            ("abc", "abc"),
        ],
    )
    def test_ties(self, one: Any, other: Any) -> None:
        first, second = Version.of(one), Version.of(other)
        assert not first.is_older_than(second)
        assert not second.is_older_than(first)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (1, "a"),
            (1, "2026-01-01"),
            ("2026-01-01", "2026-01-01T00:00:00Z"),
            ("2026-01-01T00:00:00", "2026-01-01T00:00:00Z"),
        ],
    )
    def test_two_kinds_have_none(self, one: Any, other: Any) -> None:
        with pytest.raises(OrderingError, match="which is newer"):
            Version.of(one).is_older_than(Version.of(other))

    @pytest.mark.parametrize(
        "value",
        [
            None,
            "",
            True,
            [],
            {},
            float("nan"),
            float("inf"),
            Decimal("NaN"),
            b"1",
            "2026-13-01",
            "2026-02-30T00:00:00Z",
            "2026-01-01T00:00:61Z",
            "x" * MAX_VERSION,
        ],
    )
    def test_what_is_none(self, value: Any) -> None:
        with pytest.raises(OrderingError) as raised:
            Version.of(value)
        assert "xxx" not in str(raised.value)


@pytest.fixture(autouse=True)
def rare_retries(configure: Callable[..., None]) -> None:
    """Let a failed event wait until the test says so: a back-off may also be no wait at all."""
    configure(BACKOFF=timedelta(days=1), BACKOFF_MAX=timedelta(days=1))


class Log:
    """A handler that writes an effect and notes its events."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.errors: dict[str, Exception] = {}

    def __call__(self, event: WebhookEvent) -> None:
        self.seen.append(event.event_id)
        Effect.objects.create(event_id=event.event_id)
        error = self.errors.pop(event.event_id, None)
        if error is not None:
            raise error


@pytest.fixture(params=["queued", "queued leased", "inline"])
def log(request: Any, handlers: Any, configure: Callable[..., None]) -> Log:
    """Give a handler with a version, in each way to run it."""
    handler = Log()
    processing, _, leased = request.param.partition(" ")
    configure(PROCESSING=processing)
    handlers.add(handler, name="h", ordering_key="object", version="v", atomic=not leased)
    return handler


@pytest.fixture
def run(client: Client, drain: Callable[[], int]) -> Callable[..., WebhookEvent]:
    """Give a function that delivers an event, lets it run, and returns its row."""

    def once(event_id: str, version: Any, **more: Any) -> WebhookEvent:
        deliver(client, "stripe", event_id, v=version, **{"object": 1, **more})
        drain()
        return WebhookEvent.objects.get(event_id=event_id)

    return once


def version() -> str:
    return OrderingKey.objects.get().version


@database
class TestRuns:
    def test_an_older_one_is_not_run(self, run: Any, log: Log, client: Client) -> None:
        run("e1", 2)
        event = run("e2", 1)
        assert (event.status, event.lane, event.last_error) == (EventStatus.SUPERSEDED, None, "")
        assert event.processed_at is not None
        assert (log.seen, version()) == (["e1"], "2")
        assert not HandlerTurn.objects.exists()
        assert OrderingKey.objects.get().holder is None
        assert deliver(client, "stripe", "e2").json()["status"] == "duplicate"

    def test_newer_ones_and_ties_are(self, run: Any, log: Log) -> None:
        for number, value in enumerate(["2026-01-02T00:00:00Z"] * 2 + ["2026-01-03T00:00:00Z"]):
            assert run(f"e{number}", value).status == EventStatus.PROCESSED
        assert log.seen == ["e0", "e1", "e2"]
        assert version() == '"2026-01-03T00:00:00Z"'

    def test_a_failure_applies_nothing(self, run: Any, log: Log) -> None:
        log.errors["e2"] = ValueError()
        run("e1", 1)
        assert run("e2", 3).status == EventStatus.FAILED
        assert version() == "1"

    def test_nor_does_what_the_handler_ignores(self, run: Any, log: Log) -> None:
        log.errors["e2"] = Ignore()
        run("e1", 1)
        assert run("e2", 3).status == EventStatus.IGNORED
        assert run("e3", 2).status == EventStatus.PROCESSED

    def test_a_handler_may_say_so_itself(self, run: Any, log: Log) -> None:
        """It knows better in a tie."""
        log.errors["e2"] = Superseded()
        run("e1", 1)
        event = run("e2", 1)
        assert (event.status, event.processed_at is None) == (EventStatus.SUPERSEDED, False)

    @pytest.mark.parametrize("value", [None, "x", True], ids=str)
    def test_one_that_has_no_order_is_a_failure(self, run: Any, log: Log, value: Any) -> None:
        run("e1", 1)
        event = run("e2", value)
        assert (event.status, log.seen, version()) == (EventStatus.FAILED, ["e1"], "1")
        assert "OrderingError: h: The version is" in event.last_error

    def test_objects_have_their_own(self, run: Any, log: Log) -> None:
        run("e1", 2)
        assert run("e2", 1, object=2).status == EventStatus.PROCESSED
        assert run("e3", 1, object=None).status == EventStatus.PROCESSED
        assert log.seen == ["e1", "e2", "e3"]


@database
class TestSeveralHandlers:
    @pytest.fixture(autouse=True, params=["queued", "inline"])
    def processing(self, request: Any, configure: Callable[..., None]) -> None:
        configure(PROCESSING=request.param)

    def test_one_that_is_superseded_stops_no_other(self, run: Any, handlers: Any) -> None:
        old, free = Log(), Log()
        handlers.add(old, name="old", ordering_key="object", version="v")
        handlers.add(free, name="free")
        run("e1", 2)
        event = run("e2", 1)
        assert (old.seen, free.seen, event.status) == (["e1"], ["e1", "e2"], EventStatus.PROCESSED)
        runs = HandlerRun.objects.filter(event=event).values_list("handler", "error_class")
        assert sorted(runs) == [("free", ""), ("old", "Superseded")]

    def test_all_of_them(self, run: Any, handlers: Any) -> None:
        one, two = Log(), Log()
        handlers.add(one, ordering_key="object", version="v")
        handlers.add(two, ordering_key="object", version=lambda event: event.data["v"])
        run("e1", 2)
        assert run("e2", 1).status == EventStatus.SUPERSEDED
        assert (one.seen, two.seen) == (["e1"], ["e1"])

    def test_it_is_not_asked_again_in_a_retry(
        self, run: Any, handlers: Any, later: Callable[..., None], client: Client
    ) -> None:
        old, bad = Log(), Log()
        bad.errors["e2"] = ValueError()
        handlers.add(old, name="old", ordering_key="object", version="v")
        handlers.add(bad, name="bad")
        run("e1", 2)
        assert run("e2", 1).status == EventStatus.FAILED
        OrderingKey.objects.update(version="")
        later()
        assert run("e2", 1).status == EventStatus.PROCESSED
        assert (old.seen, bad.seen) == (["e1"], ["e1", "e2", "e2"])


@database
def test_the_answer_in_a_request(client: Client, handlers: Any, configure: Any) -> None:
    configure(PROCESSING="inline")
    handlers.add(Log(), ordering_key="object", version="v")
    deliver(client, "stripe", "e1", v=2, object=1)
    answer = deliver(client, "stripe", "e2", v=1, object=1)
    assert (answer.status_code, answer.json()) == (200, {"status": "superseded", "event": "e2"})
    assert WebhookDelivery.objects.order_by("-pk")[0].outcome == Outcome.SUPERSEDED
