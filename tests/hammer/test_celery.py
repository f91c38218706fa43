"""Real Celery: whatever happens to brokers, messages and workers, each event runs once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from celery import Celery
from django.db import connection, connections

from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.models import HandlerRun, WebhookEvent
from django_webhook_idempotency.names import RUN

from .brokers import RabbitBroker, RedisBroker
from .cluster import Cluster, celery_cluster
from .conftest import FULL, only_when_full
from .killer import Killer
from .latency import milliseconds
from .ledger_state import assert_quiet, effects
from .provider import Campaign, Event, events, fresh, post
from .queue_state import accept, assert_once, frozen, runs, waits

pytestmark = [
    pytest.mark.only_on("postgresql", "mysql"),
    pytest.mark.django_db(transaction=True),
]


def tell_again(cluster: Cluster, pks: list[int], times: int) -> None:
    """Send messages that nobody needs."""
    broker = cluster.broker
    with Celery("again", broker=broker.url, set_as_current=False) as app:
        app.conf.task_default_queue = broker.queue
        for pk in pks * times:
            app.send_task(RUN, args=[pk], ignore_result=True)


@pytest.fixture(autouse=True)
def not_every_day(request: pytest.FixtureRequest) -> None:
    """Leave out of an everyday run what its sibling shows nearly the same."""
    scenarios: Any = request.cls
    wanted = scenarios.everyday if connection.vendor == "postgresql" else scenarios.main
    if not FULL and request.function.__name__ not in wanted:
        pytest.skip("only with WEBHOOK_HAMMER=full")


@pytest.fixture(scope="class")
def cluster(
    request: pytest.FixtureRequest,
    django_db_setup: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """Start everything once for all tests of a broker."""
    kind: str = request.cls.broker
    directory = tmp_path_factory.mktemp(kind)
    broker = RedisBroker(directory) if kind == "redis" else RabbitBroker()
    with ExitStack() as stack:
        stack.callback(broker.close)
        yield stack.enter_context(celery_cluster(directory, broker, workers=[2, 2]))


class Scenarios:
    """What happens to a cluster, whichever its broker."""

    #: The tests of an everyday run on PostgreSQL.
    everyday: frozenset[str] = frozenset()
    #: Those of one on MariaDB.
    main = frozenset(
        {
            "test_all_that_is_accepted_runs_once",
            "test_a_flushed_broker_costs_time_only",
            "test_killed_processes_lose_and_double_nothing",
        }
    )

    def test_all_that_is_accepted_runs_once(
        self, cluster: Cluster, figures: Callable[..., None]
    ) -> None:
        """Two worker nodes, two Beats, and half of the messages doubled while they drain."""
        sent = events(120) + events(40, "hammer.leased")
        started = time.monotonic()
        campaign = accept(cluster, sent)
        pks = list(WebhookEvent.objects.values_list("pk", flat=True))
        tell_again(cluster, pks[::2], 1)
        cluster.drain(len(sent))
        figures(
            broker=type(cluster.broker).__name__,
            events=len(sent),
            per_second=round(len(sent) / (time.monotonic() - started), 1),
            receipt=milliseconds(campaign.all_seconds),
            to_the_end=milliseconds(waits()),
        )
        assert_once(cluster, sent)
        assert runs(cluster, sent) == len(sent)
        assert_quiet(cluster.server)

    def test_messages_of_long_ago_do_no_harm(self, cluster: Cluster) -> None:
        """WB-044: messages of events that are finished, or gone."""
        sent = events(10)
        accept(cluster, sent)
        cluster.drain(len(sent))
        before = list(WebhookEvent.objects.order_by("pk").values())
        pks = [row["id"] for row in before]
        tell_again(cluster, [*pks, 10**9], 3)
        last = events(1)
        accept(cluster, last)
        cluster.drain(len(sent) + 1)
        until_idle(cluster)
        assert list(WebhookEvent.objects.filter(pk__in=pks).order_by("pk").values()) == before
        assert_once(cluster, sent + last)

    def test_a_flushed_broker_costs_time_only(self, cluster: Cluster) -> None:
        """WB-042: the sweeper sends everything again."""
        sent = events(40)
        with frozen(cluster):
            accept(cluster, sent)
            assert cluster.broker.waiting() >= 30
            cluster.broker.empty()
            assert cluster.broker.waiting() == 0
        cluster.drain(len(sent))
        assert_once(cluster, sent)

    def test_a_broker_that_is_down_and_comes_back(
        self, cluster: Cluster, figures: Callable[..., None]
    ) -> None:
        """WB-011, WB-020: acknowledged all the same, and run when it is back."""
        cluster.broker.stop()
        try:
            sent = events(40)
            campaign = accept(cluster, sent)
            assert WebhookEvent.objects.filter(status=EventStatus.PENDING).count() == len(sent)
        finally:
            cluster.broker.start()
        slow = sorted(campaign.all_seconds, reverse=True)
        figures(broker=type(cluster.broker).__name__, receipt=milliseconds(campaign.all_seconds))
        # Each of the server's two processes finds out once, with a second of patience.
        assert [seconds for seconds in slow if seconds > 2.5] == []
        seconds = cluster.drain(len(sent))
        figures(broker=type(cluster.broker).__name__, back_after=round(seconds, 1))
        assert_once(cluster, sent)

    def test_killed_processes_lose_and_double_nothing(
        self, cluster: Cluster, size: Callable[[int, int], int], figures: Callable[..., None]
    ) -> None:
        """WB-017: kill -9 inside a handler; what it held runs again when its lease is over."""
        killer = Killer(cluster.server, size(200, 6), linger=0.03)
        sent: list[Event] = []

        def deliveries() -> Iterator[Event]:
            for event in killer.feed("hammer.atomic", at_most=killer.wanted * 60, copies=1):
                sent.append(event)
                yield event
                backlog(at_most=60)

        killer.start()
        try:
            tally = Campaign(cluster.server.port, deliveries(), connections=4).run()
            cluster.drain(len(sent), timeout=60 + killer.wanted)
        finally:
            killer.stop()
        connections.close_all()
        figures(
            broker=type(cluster.broker).__name__,
            events=len(sent),
            kills_inside=killer.inside,
            runs=runs(cluster, sent),
        )
        assert killer.inside >= killer.wanted
        assert set(tally.accepted) == {event.id for event in sent}
        assert_once(cluster, sent)

    @pytest.mark.parametrize(
        "kind", ["hammer.atomic", pytest.param("hammer.leased", marks=only_when_full)]
    )
    def test_a_process_frozen_past_its_lease_cannot_finish(
        self, cluster: Cluster, kind: str
    ) -> None:
        event = Event("stripe", fresh("frozen"), kind, {"after": 600})
        assert post(cluster.server.port, event).status == 202
        asleep = cluster.server.wait_for("wrote", event.id).pid
        os.kill(asleep, signal.SIGSTOP)
        try:
            awake = cluster.server.wait_for("enter", event.id, count=2)
            assert awake.pid != asleep
            cluster.drain(1)
        finally:
            os.kill(asleep, signal.SIGCONT)
        until_idle(cluster)
        stored = WebhookEvent.objects.get()
        assert (stored.status, stored.attempts) == (EventStatus.PROCESSED, 2)
        # What an atomic handler wrote before it was frozen is undone.
        assert effects()[event.id] == (1 if kind == "hammer.atomic" else 2)
        finished = HandlerRun.objects.filter(error_class="").count()
        assert finished <= 1

    def test_a_flood_of_one_tenant_starves_no_other(self, cluster: Cluster) -> None:
        prefix = fresh("loud")
        flood = [
            Event("stripe", f"{prefix}-{n}", plan={"after": 10}, path="/webhooks/stripe/loud/")
            for n in range(80)
        ]
        quiet = [
            Event("stripe", fresh("quiet"), path=f"/webhooks/stripe/quiet-{n}/") for n in range(3)
        ]
        with frozen(cluster):
            accept(cluster, flood)
            accept(cluster, quiet)
        cluster.drain(len(flood) + len(quiet))
        order = [line.event for line in cluster.journal.lines("enter")]
        order = [each for each in order if each.startswith(("loud", "quiet"))]
        last = max(order.index(event.id) for event in quiet)
        # Messages that the nodes had taken before they were frozen, and a look for new sources.
        assert last < 40, order
        assert_once(cluster, flood + quiet)


@pytest.mark.service("rabbitmq")
class TestRabbitMQ(Scenarios):
    broker = "rabbitmq"
    everyday = Scenarios.main | {
        "test_a_process_frozen_past_its_lease_cannot_finish",
        "test_a_flood_of_one_tenant_starves_no_other",
        "test_messages_of_long_ago_do_no_harm",
    }


@pytest.mark.service("redis-server")
class TestRedis(Scenarios):
    broker = "redis"
    everyday = frozenset(
        {
            "test_a_visibility_timeout_shorter_than_the_handler",
            "test_a_broker_that_is_down_and_comes_back",
        }
    )
    main = frozenset({"test_a_broker_that_is_down_and_comes_back"})

    def test_a_visibility_timeout_shorter_than_the_handler(self, cluster: Cluster) -> None:
        """WB-044: the message comes again and again beside the running handler."""
        event = Event("stripe", fresh("long"), "hammer.leased", {"after": 5000})
        assert post(cluster.server.port, event).status == 202
        # Behind the redelivered messages, to see that those were looked at.
        cluster.server.wait_for("enter", event.id)
        cluster.drain(1)
        until_idle(cluster)
        redelivered = sum(worker.log.count(f"{RUN}[") for worker in cluster.workers)
        assert redelivered > 2
        assert runs(cluster, [event]) == 1
        assert_once(cluster, [event])


def until_idle(cluster: Cluster, quiet: float = 0.7) -> None:
    """Wait until no message waits and nothing was logged for a moment."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        before = [node.log.count(RUN) for node in cluster.workers]
        time.sleep(quiet)
        if not cluster.broker.waiting() and before == [n.log.count(RUN) for n in cluster.workers]:
            return
    raise AssertionError(f"The workers do not come to rest:\n{cluster.logs()}")


def backlog(at_most: int) -> None:
    """Wait until no more than so many events wait: a killer needs somebody inside a handler."""
    try:
        while WebhookEvent.objects.unfinished().count() > at_most:
            time.sleep(0.05)
    finally:
        connections.close_all()
