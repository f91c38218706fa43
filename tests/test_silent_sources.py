"""A source that should have been heard of: seen, and told of once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection, connections
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.dispatch.silence import (
    Silence,
    looks,
    silent_sources,
    tell_of_silence,
)
from django_webhook_idempotency.dispatch.sweeper import sweep
from django_webhook_idempotency.dispatch.worker import Worker
from django_webhook_idempotency.models import ExpectedSource, SecretUse
from django_webhook_idempotency.providers import configured_provider
from django_webhook_idempotency.signals import webhook_source_silent
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def expected(settings: Any) -> None:
    """Expect Stripe to be heard of every hour, and nobody else."""
    providers = settings.WEBHOOK_IDEMPOTENCY["PROVIDERS"]
    stripe = {**providers["stripe"], "EXPECT_EVERY": HOUR}
    settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": {**providers, "stripe": stripe}}


@pytest.fixture
def heard() -> Iterator[list[dict[str, Any]]]:
    """Collect what the signal carries."""
    found: list[dict[str, Any]] = []

    def hear(**sent: Any) -> None:
        found.append(sent)

    webhook_source_silent.connect(hear)
    yield found
    webhook_source_silent.disconnect(hear)


def age(hours: float) -> datetime:
    """Make the last delivery older; return when it was."""
    at = timezone.now() - timedelta(hours=hours)
    SecretUse.objects.update(last_used_at=at)
    return at


class TestWhatIsSilent:
    def test_nothing_that_was_heard_of_in_time(self, client: Client) -> None:
        deliver(client, "stripe")
        assert silent_sources(timezone.now() + HOUR * 0.99) == []

    def test_what_was_heard_of_too_long_ago(self, client: Client) -> None:
        deliver(client, "stripe")
        deliver(client, "github")
        at = SecretUse.objects.get(provider="stripe").last_used_at
        found = silent_sources(timezone.now() + HOUR * 1.01)
        assert found == [Silence("stripe", at, HOUR)]

    def test_the_secret_that_was_used_last_counts(self) -> None:
        now = timezone.now()
        for number, hours in enumerate((0.5, 3, 9)):
            SecretUse.objects.create(
                provider="stripe", fingerprint=str(number), last_used_at=now - HOUR * hours
            )
        assert silent_sources(now) == []

    def test_a_delivery_that_is_refused_is_no_sign_of_life(self, client: Client) -> None:
        deliver(client, "stripe", headers={"Stripe-Signature": "t=1,v1=00"})
        assert [each.heard for each in silent_sources(timezone.now() + HOUR * 2)] == []
        assert [each.heard for each in silent_sources(timezone.now() + HOUR * 4)] == [False]

    def test_one_that_never_delivered_is_expected_since_the_first_look(self) -> None:
        now = timezone.now()
        assert silent_sources(now) == []
        assert ExpectedSource.objects.get().expected_since == now
        assert silent_sources(now + HOUR * 0.99) == []
        found = silent_sources(now + HOUR * 1.01)
        assert found == [Silence("stripe", now, HOUR, heard=False)]
        assert "never heard of" in str(found[0])

    def test_a_look_costs_no_more_with_many_secrets(self, django_assert_num_queries: Any) -> None:
        now = timezone.now()
        SecretUse.objects.bulk_create(
            SecretUse(provider="stripe", fingerprint=f"{number:08x}", last_used_at=now)
            for number in range(500)
        )
        with django_assert_num_queries(1) as captured:
            silent_sources(now)
        assert "LIMIT 1" in captured[0]["sql"]

    @pytest.mark.parametrize("value", [60, HOUR / 60, "1h", True])
    def test_a_value_that_cannot_be_kept_is_refused(self, value: Any) -> None:
        with pytest.raises(Exception, match=r"'EXPECT_EVERY' .* two minutes or more"):
            configured_provider("stripe", {"EXPECT_EVERY": value})


class TestSignal:
    def test_it_is_sent_once_in_each_silence(
        self, client: Client, heard: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
    ) -> None:
        deliver(client, "stripe")
        assert tell_of_silence(timezone.now()) == 0
        at = age(2)
        assert [tell_of_silence(timezone.now()) for _ in range(3)] == [1, 0, 0]
        assert len(heard) == 1
        assert {name: heard[0][name] for name in ("provider", "expected_every", "heard")} == {
            "provider": "stripe",
            "expected_every": HOUR,
            "heard": True,
        }
        assert heard[0]["since"] == at
        assert "webhook source is silent: stripe" in caplog.text
        age(0)
        assert tell_of_silence(timezone.now()) == 0
        age(1.5)
        assert [tell_of_silence(timezone.now()) for _ in range(2)] == [1, 0]
        assert len(heard) == 2

    def test_of_several_processes_one_sends_it(
        self, client: Client, heard: list[dict[str, Any]]
    ) -> None:
        deliver(client, "stripe")
        age(2)
        start, told = threading.Barrier(5), []

        def tell() -> None:
            start.wait()
            try:
                told.append(tell_of_silence(timezone.now()))
            finally:
                connections.close_all()

        threads = [threading.Thread(target=tell) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(told) == len(heard) == 1

    def test_a_receiver_that_raises_stops_nothing(self, client: Client) -> None:
        def fail(**sent: Any) -> None:
            raise ValueError

        deliver(client, "stripe")
        age(2)
        webhook_source_silent.connect(fail)
        try:
            assert tell_of_silence(timezone.now()) == 1
        finally:
            webhook_source_silent.disconnect(fail)

    def test_the_sweep_sends_it(self, client: Client, heard: list[dict[str, Any]]) -> None:
        """Whatever the engine is: Beat sweeps for Celery."""
        deliver(client, "stripe")
        age(2)
        assert sweep() == 0
        assert len(heard) == 1

    def test_a_worker_sends_it(self, client: Client, heard: list[dict[str, Any]]) -> None:
        deliver(client, "stripe")
        age(2)
        Worker(concurrency=1, grace=5, once=True).run()
        assert len(heard) == 1

    def test_a_process_looks_once_a_minute(
        self, client: Client, django_assert_num_queries: Any
    ) -> None:
        sweep()
        with django_assert_num_queries(0):
            sweep()
        looks.forget()
        with django_assert_num_queries(2):
            sweep()

    def test_where_nobody_is_expected_nothing_is_asked(
        self, settings: Any, django_assert_num_queries: Any
    ) -> None:
        settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": {"stripe": {"SECRETS": ["a"]}}}
        with django_assert_num_queries(0):
            sweep()

    def test_a_database_that_fails_stops_no_sweep(self, caplog: pytest.LogCaptureFixture) -> None:
        def fail(execute: Any, sql: str, *rest: Any) -> Any:
            if "secretuse" in sql:
                raise DatabaseError("gone")
            return execute(sql, *rest)

        with connection.execute_wrapper(fail):
            assert sweep() == 0
        assert "webhook look for silent sources failed: DatabaseError" in caplog.text


class TestStatus:
    @pytest.fixture
    def asked(self) -> Callable[..., dict[str, Any]]:
        def ask() -> dict[str, Any]:
            out = StringIO()
            try:
                call_command("webhooks_status", "--json", stdout=out)
            except CommandError as error:
                return {**json.loads(out.getvalue()), "exit": error.returncode}
            return {**json.loads(out.getvalue()), "exit": 0}

        return ask

    def test_a_silent_source_is_a_problem(
        self, client: Client, asked: Callable[[], dict[str, Any]]
    ) -> None:
        deliver(client, "stripe")
        found = asked()
        assert (found["healthy"], found["exit"]) == (True, 0)
        at = age(2).isoformat()
        found = asked()
        assert (found["healthy"], found["exit"]) == (False, 2)
        assert found["problems"] == [f"stripe: silent since {at}, not for 1:00:00"]
        assert found["providers"]["stripe"]["silent_since"] == at
        assert found["providers"]["github"]["silent_since"] is None
