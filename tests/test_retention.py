"""What a purge removes, what it never touches, and what happens beside it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, models, transaction
from django.test import Client, override_settings
from django.utils import timezone
from django.utils.connection import ConnectionDoesNotExist

from django_webhook_idempotency.enums import FINISHED, UNFINISHED, EventStatus
from django_webhook_idempotency.models import (
    HandlerRun,
    HandlerStep,
    HandlerTurn,
    OrderingKey,
    WebhookDelivery,
    WebhookEvent,
    digest_of,
)
from django_webhook_idempotency.retention import (
    Kind,
    OutOfTime,
    Purge,
    known_providers,
    policy_of,
)
from tests.app.models import Effect
from tests.deliveries import deliver

KEY, BODY = 90, 30  # days: the default retention of keys, and of bodies and deliveries


def ago(days: float) -> datetime:
    return timezone.now() - timedelta(days=days)


def make_event(days: float = 0, provider: str = "stripe", **values: Any) -> WebhookEvent:
    number = WebhookEvent.objects.count() + 1
    values = {
        "event_id": f"evt_{number}",
        "dedupe_key": digest_of(provider, str(number), str(timezone.now())),
        "status": EventStatus.PROCESSED,
        "body": b"{}",
        "received_at": ago(days),
        **values,
    }
    return WebhookEvent.objects.create(provider=provider, **values)


def make_delivery(days: float = 0, event: WebhookEvent | None = None, **values: Any) -> Any:
    return WebhookDelivery.objects.create(
        **{
            "event": event,
            "provider": event.provider if event else "stripe",
            "received_at": ago(days),
            "outcome": "processed",
            "status": 200,
            **values,
        }
    )


def make_run(event: WebhookEvent) -> HandlerRun:
    return HandlerRun.objects.create(event=event, handler="a.b", number=1, started_at=ago(0))


def make_ordering_key(key: str, days: float, provider: str = "stripe") -> OrderingKey:
    return OrderingKey.objects.create(key=key, provider=provider, updated_at=ago(days))


def make_purge(*slugs: str, **options: Any) -> Purge:
    """A purge with small ranges, so that every test crosses some."""
    policies = [policy_of(slug, timezone.now()) for slug in slugs or known_providers()]
    return Purge(policies, **{"batch_size": 3, "pause": 0, **options})


def run(purge: Purge) -> Counter[Kind]:
    for _ in purge.steps():
        pass
    return total(purge.removed)


def total(counts: dict[str, Counter[Kind]]) -> Counter[Kind]:
    return +sum(counts.values(), Counter[Kind]())


def orphans() -> int:
    return (
        WebhookDelivery.objects.filter(event__isnull=False)
        .exclude(event__in=WebhookEvent.objects.all())
        .count()
    )


@pytest.mark.django_db
class TestWhatGoes:
    def test_the_key_goes_after_its_retention_and_no_earlier(self) -> None:
        make_event(KEY + 1)
        young = make_event(KEY - 1)
        assert run(make_purge())[Kind.KEYS] == 1
        assert list(WebhookEvent.objects.all()) == [young]

    def test_the_body_goes_before_the_key(self) -> None:
        old = make_event(BODY + 1, response_body=b"ok", response_status=200)
        answered = make_event(BODY + 1, body=None, response_body=b"ok")
        empty = make_event(BODY + 1, body=None)
        young = make_event(BODY - 1)
        assert run(make_purge()) == {Kind.BODIES: 2}
        assert set(
            WebhookEvent.objects.values_list("pk", "body", "response_body", "response_status")
        ) == {
            (old.pk, None, None, 200),
            (answered.pk, None, None, None),
            (empty.pk, None, None, None),
            (young.pk, young.body, None, None),
        }

    def test_a_delivery_goes_after_its_own_retention_with_or_without_an_event(self) -> None:
        event = make_event(BODY - 1, body=None)
        make_delivery(BODY + 1, event)
        make_delivery(BODY + 1, outcome="rejected")
        kept = {make_delivery(BODY - 1, event), make_delivery(BODY - 1, outcome="rejected")}
        assert run(make_purge()) == {Kind.DELIVERIES: 2}
        assert set(WebhookDelivery.objects.all()) == kept

    def test_an_event_takes_its_deliveries_and_runs_along(self) -> None:
        going, staying = make_event(KEY + 1), make_event(KEY - 1, body=None)
        for event in (going, staying):
            make_delivery(1, event)
            make_run(event)
            make_run(event)
        assert run(make_purge()) == {Kind.KEYS: 1, Kind.DELIVERIES: 1, Kind.RUNS: 2}
        assert WebhookDelivery.objects.get().event == staying
        assert {handler_run.event for handler_run in HandlerRun.objects.all()} == {staying}
        assert orphans() == 0

    def test_its_steps_and_turns_go_along_too(self) -> None:
        old, new = make_event(KEY + 1), make_event(1)
        for event in (old, new):
            HandlerStep.objects.create(event=event, key="k", name="s", handler="h", result="1")
            HandlerTurn.objects.create(event=event, key="k")
        counted = total(make_purge().count())
        assert run(make_purge()) == {Kind.KEYS: 1, Kind.RUNS: 1} == counted
        assert HandlerStep.objects.get().event_id == HandlerTurn.objects.get().event_id == new.pk

    def test_ordering_keys_go_when_their_newest_event_may(self) -> None:
        """But not while an event waits for one, and each by its own provider's retention."""
        for number, days in enumerate([KEY + 1] * 7 + [KEY - 1]):
            make_ordering_key(str(number), days)
        make_ordering_key("github", 31, provider="github")
        make_ordering_key("gone", KEY + 1, provider="gone")
        waiting = make_event(KEY + 1, status=EventStatus.FAILED)
        HandlerTurn.objects.create(event=waiting, key="3")
        with override_settings(
            WEBHOOK_IDEMPOTENCY={
                "PROVIDERS": {
                    "stripe": {"SECRETS": ["whsec_0123456789"]},
                    "github": {"SECRETS": ["s"], "RETENTION": timedelta(days=30)},
                }
            }
        ):
            counted = total(make_purge().count())
            assert run(make_purge()) == {Kind.ORDERING: 8} == counted
        assert sorted(OrderingKey.objects.values_list("key", flat=True)) == ["3", "7"]

    @pytest.mark.parametrize("status", sorted(UNFINISHED))
    def test_an_unfinished_event_stays_whole_however_old_it_is(self, status: str) -> None:
        """Also WB-082: what never succeeded has to be there for whoever looks into it."""
        event = make_event(10 * KEY, status=status)
        delivery, handler_run = make_delivery(10 * KEY, event), make_run(event)
        for _ in range(4):
            make_event(10 * KEY)
        assert run(make_purge()) == {Kind.KEYS: 4}
        assert WebhookEvent.objects.get().body == event.body
        assert WebhookDelivery.objects.get() == delivery
        assert HandlerRun.objects.get() == handler_run

    @pytest.mark.parametrize("status", sorted(FINISHED))
    def test_every_finished_event_goes(self, status: str) -> None:
        make_event(KEY + 1, status=status)
        assert run(make_purge()) == {Kind.KEYS: 1}

    def test_rows_are_judged_by_their_own_time_and_not_by_their_id(self) -> None:
        young = [make_event(1), make_event(2)]
        old = [make_event(KEY + days) for days in (1, 3, 2)]
        young.append(make_event(0))
        old.append(make_event(KEY + 9))
        assert run(make_purge()) == {Kind.KEYS: 4}
        assert set(WebhookEvent.objects.all()) == set(young)

    def test_one_run_goes_on_until_nothing_is_left(self) -> None:
        """WB-086: more than one range, and gaps between the ids."""
        events = [make_event(KEY + 1) for _ in range(25)]
        for event in events[4:12]:
            event.delete()
        purge = make_purge()
        assert run(purge) == {Kind.KEYS: 17}
        assert not WebhookEvent.objects.exists()
        assert run(make_purge()) == {}

    def test_each_provider_has_its_own_retention(self) -> None:
        settings = {
            "BODY_RETENTION": timedelta(days=10),
            "PROVIDERS": {
                "stripe": {"RETENTION": timedelta(days=365), "BODY_RETENTION": timedelta(days=200)},
                "github": {"DELIVERY_RETENTION": timedelta(days=5)},
            },
        }
        for provider in ("stripe", "github", "gone"):
            for days in (6, 11, 100):
                make_delivery(days, make_event(days, provider))
        with override_settings(WEBHOOK_IDEMPOTENCY=settings):
            purge = make_purge()
            counted = purge.count()
            run(purge)
        assert purge.removed == counted
        assert purge.removed["stripe"] == {Kind.DELIVERIES: 1}
        assert purge.removed["github"] == {Kind.DELIVERIES: 3, Kind.KEYS: 1, Kind.BODIES: 1}
        # Configured no longer: what stands at the top of the settings, else the defaults.
        assert purge.removed["gone"] == {Kind.DELIVERIES: 1, Kind.KEYS: 1, Kind.BODIES: 1}

    def test_other_providers_rows_stay(self) -> None:
        make_event(KEY + 1, "stripe")
        make_event(KEY + 1, "github")
        assert run(make_purge("github")) == {Kind.KEYS: 1}
        assert WebhookEvent.objects.get().provider == "stripe"

    def test_the_count_says_what_the_purge_then_does(self) -> None:
        for provider in ("stripe", "github", "keyed"):
            for days in (KEY + 5, KEY + 1, KEY - 1, BODY + 1, BODY - 1):
                for status in EventStatus.values:
                    event = make_event(days, provider, status=status)
                    make_run(event)
                    for delivered in (days, BODY + 1, 1):
                        make_delivery(delivered, event)
                make_delivery(days, provider=provider, outcome="rejected")
        purge = make_purge()
        counted = purge.count()
        assert total(counted) == {
            Kind.KEYS: 18,
            Kind.RUNS: 18,
            Kind.BODIES: 18,
            Kind.DELIVERIES: total(counted)[Kind.DELIVERIES],
        }
        run(purge)
        assert purge.removed == counted
        assert total(make_purge().count()) == {}
        assert orphans() == 0

    def test_what_a_purge_removes_changes_no_decision_inside_the_window(
        self, client: Client, handlers: Any
    ) -> None:
        """WB-084: the gate is one table; bodies and deliveries may go and a copy stays a copy."""
        handlers.add(lambda event: Effect.objects.create(event_id=event.event_id))
        deliver(client, "stripe")
        WebhookEvent.objects.update(received_at=ago(KEY - 1))
        WebhookDelivery.objects.update(received_at=ago(KEY - 1))
        assert run(make_purge()) == {Kind.BODIES: 1, Kind.DELIVERIES: 1}
        assert deliver(client, "stripe").json()["status"] == "duplicate"
        assert Effect.objects.count() == 1


@pytest.mark.django_db
class TestPolicy:
    def test_before_is_the_time_of_everything(self) -> None:
        before = ago(45)
        policy = policy_of("stripe", timezone.now(), before)
        assert (policy.keys, policy.bodies, policy.deliveries) == (before, before, before)

    def test_it_is_safe_while_no_key_goes_inside_the_window(self) -> None:
        """WB-082: Stripe resends for 30 days."""
        now = timezone.now()
        assert policy_of("stripe", now).is_safe
        assert policy_of("stripe", now, now - timedelta(days=30)).is_safe
        assert not policy_of("stripe", now, now - timedelta(days=29)).is_safe
        assert policy_of("no-longer-configured", now, now - timedelta(days=1)).is_safe

    def test_providers_are_those_configured_and_those_stored(self) -> None:
        make_event(provider="zulu")
        make_event(provider="acme")
        make_event(provider="acme")
        make_delivery(provider="bravo")
        with override_settings(WEBHOOK_IDEMPOTENCY={"PROVIDERS": {"stripe": {}}}):
            assert known_providers() == ["acme", "bravo", "stripe", "zulu"]

    def test_the_ledgers_own_database_is_purged(self) -> None:
        """WB-049: whatever the router says."""

        class Router:
            def db_for_write(self, model: Any, **hints: Any) -> str:
                return "elsewhere"

        with (
            override_settings(DATABASE_ROUTERS=[Router()]),
            pytest.raises(ConnectionDoesNotExist, match="elsewhere"),
        ):
            Purge([])


@pytest.mark.django_db
class TestSteps:
    def test_a_purge_that_was_stopped_goes_on_where_it_was(self) -> None:
        for _ in range(20):
            make_delivery(KEY + 1, make_event(KEY + 1))
        first = make_purge()
        for _ in zip(range(9), first.steps(), strict=False):
            pass
        done = total(first.removed)
        assert 0 < done[Kind.KEYS] < 20
        assert WebhookEvent.objects.count() == 20 - done[Kind.KEYS]
        assert done + run(make_purge()) == {Kind.DELIVERIES: 20, Kind.KEYS: 20}
        assert orphans() == 0

    def test_progress_grows_to_one(self) -> None:
        for _ in range(7):
            make_event(KEY + 1)
        shares = [progress.share for progress in make_purge("stripe").steps()]
        assert shares == sorted(shares)
        assert 0 < shares[0] < shares[-1] < 1  # no body is left to walk
        make_event(BODY + 1)
        assert [progress.share for progress in make_purge("stripe").steps()][-1] == 1

    def test_time_runs_out_only_if_something_is_left(self) -> None:
        assert run(make_purge(max_seconds=0)) == {}
        for _ in range(7):
            make_event(KEY + 1)
        with pytest.raises(OutOfTime, match="in the keys of stripe, before id"):
            run(make_purge(max_seconds=0))
        assert WebhookEvent.objects.count() == 7
        assert run(make_purge(max_seconds=60)) == {Kind.KEYS: 7}

    def test_the_database_decides_on_batch_and_pause_where_nobody_else_does(self) -> None:
        purge = Purge([])
        assert (purge.batch_size, purge.pause) == (
            (500, 0.05) if connection.vendor == "sqlite" else (2000, 0.0)
        )

    def test_it_refuses_to_run_inside_of_a_transaction(self, transactional_db: None) -> None:
        make_event(KEY + 1)
        with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
            run(make_purge())
        assert WebhookEvent.objects.count() == 1

    def test_no_statement_counts_or_passes_the_whole_table(
        self, django_assert_max_num_queries: Any
    ) -> None:
        """WB-085: a constant number of statements for each range."""
        for _ in range(30):
            make_event(KEY + 1)
        with django_assert_max_num_queries(10 * 3 + 20) as captured:
            run(make_purge("stripe", batch_size=10))
        statements = [query["sql"] for query in captured.captured_queries]
        assert not [sql for sql in statements if "COUNT(" in sql.upper()]
        bounded = [sql for sql in statements if sql.startswith(("DELETE", "UPDATE"))]
        assert bounded and all(" IN (" in sql or "<=" in sql or "= 0" in sql for sql in bounded)


@pytest.fixture
def payment_model(transactional_db: None) -> Iterator[Callable[[Any], type[models.Model]]]:
    """Make a model of the project's own that points at an event."""
    made: list[type[models.Model]] = []

    def make(on_delete: Any) -> type[models.Model]:
        class Meta:
            app_label = "testapp"

        field = models.ForeignKey(WebhookEvent, on_delete=on_delete, null=True, related_name="+")
        attributes = {"__module__": __name__, "Meta": Meta, "event": field}
        model = type("Payment", (models.Model,), attributes)
        with connection.schema_editor() as editor:
            editor.create_model(model)
        made.append(model)
        return model

    yield make
    for model in made:
        with connection.schema_editor() as editor:
            editor.delete_model(model)
        del apps.all_models["testapp"]["payment"]
        apps.clear_cache()


class TestTheProjectsOwnForeignKeys:
    @pytest.mark.parametrize("on_delete", [models.PROTECT, models.RESTRICT, models.DO_NOTHING])
    def test_a_protected_event_stays(self, payment_model: Any, on_delete: Any) -> None:
        payments = payment_model(on_delete)
        held = make_event(KEY + 1)
        payments.objects.create(event=held)
        make_run(held)
        make_event(KEY + 1)
        purge = make_purge()
        counted = purge.count()
        assert run(purge) == {Kind.KEYS: 1, Kind.BODIES: 1} == total(counted)
        assert WebhookEvent.objects.get() == held
        assert HandlerRun.objects.count() == 1

    def test_one_that_cascades_goes_along(self, payment_model: Any) -> None:
        payments = payment_model(models.CASCADE)
        payments.objects.create(event=make_event(KEY + 1))
        payments.objects.create(event=make_event(1))
        assert run(make_purge()) == {Kind.KEYS: 1}
        assert payments.objects.count() == 1

    def test_one_that_may_be_empty_is_emptied(self, payment_model: Any) -> None:
        payments = payment_model(models.SET_NULL)
        payments.objects.create(event=make_event(KEY + 1))
        assert run(make_purge()) == {Kind.KEYS: 1}
        assert payments.objects.get().event_id is None


class Thread(threading.Thread):
    """A thread with a connection of its own; `end` raises what it raised."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self.work = work
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error
        finally:
            connection.close()

    def end(self) -> None:
        self.join(120)
        assert not self.is_alive()
        if self.error:
            raise self.error


@pytest.mark.django_db(transaction=True)
class TestBesideOthers:
    def test_two_purges_at_once_share_the_work(self) -> None:
        """WB-045: two beats start the same job."""
        for _ in range(120):
            event = make_event(KEY + 1)
            make_delivery(KEY + 1, event)
            make_delivery(1, event)
            make_run(event)
        purges = [make_purge("stripe", batch_size=5) for _ in range(2)]
        threads = [Thread(partial(run, purge)) for purge in purges]
        for thread in threads:
            thread.end()
        assert total(purges[0].removed) + total(purges[1].removed) == {
            Kind.DELIVERIES: 240,
            Kind.KEYS: 120,
            Kind.RUNS: 120,
        }
        assert not WebhookEvent.objects.exists()
        assert not WebhookDelivery.objects.exists()
        assert not HandlerRun.objects.exists()

    def test_receipts_go_on_while_a_purge_runs(self, handlers: Any) -> None:
        """WB-085: new events, copies of kept ones and copies of those that just go."""
        handlers.add(lambda event: Effect.objects.create(event_id=event.event_id))
        client = Client()
        for number in range(40):
            deliver(client, "stripe", f"old_{number}")
        WebhookEvent.objects.update(received_at=ago(KEY + 1))
        for number in range(10):
            deliver(client, "stripe", f"kept_{number}")
        Effect.objects.all().delete()
        answers: list[Any] = []

        def receive(prefix: str, count: int) -> None:
            own = Client()
            answers.extend(deliver(own, "stripe", f"{prefix}_{n}") for n in range(count))

        threads = [
            Thread(lambda: receive("new", 30)),
            Thread(lambda: receive("kept", 10)),
            Thread(lambda: receive("old", 40)),
        ]
        purge, ranges = make_purge("stripe", batch_size=2, pause=0.01), 0
        for progress in purge.steps():
            ranges += progress.kind == Kind.KEYS
            if ranges == 20:
                # Before the walk tidies up: the row of a copy that is written later is no part
                # of what the purge can see, and goes by its own age.
                for thread in threads:
                    thread.end()
        assert ranges == 20
        removed = total(purge.removed) + run(make_purge("stripe"))
        assert {answer.status_code for answer in answers} == {200}
        assert removed[Kind.KEYS] == 40
        effects = Counter(Effect.objects.values_list("event_id", flat=True))
        assert set(effects.values()) == {1}
        assert {event_id for event_id in effects if not event_id.startswith("old")} == {
            f"new_{number}" for number in range(30)
        }
        assert orphans() == 0

    @pytest.mark.only_on("postgresql", "mysql")
    def test_an_event_that_somebody_works_on_is_left_and_not_waited_for(self) -> None:
        held, free = make_event(KEY + 1), make_event(KEY + 1)
        body = make_event(BODY + 1)
        locked, done = threading.Event(), threading.Event()

        def hold() -> None:
            with transaction.atomic():
                list(WebhookEvent.objects.filter(pk__in=[held.pk, body.pk]).select_for_update())
                locked.set()
                done.wait(60)

        thread = Thread(hold)
        try:
            assert locked.wait(60)
            assert run(make_purge()) == {Kind.KEYS: 1}
        finally:
            done.set()
            thread.end()
        assert not WebhookEvent.objects.filter(pk=free.pk).exists()
        assert run(make_purge()) == {Kind.KEYS: 1, Kind.BODIES: 1}

    def test_the_delivery_of_a_copy_that_met_its_event_going_is_no_orphan(self) -> None:
        events = [make_event(KEY + 1) for _ in range(6)]
        kept = make_delivery(1, make_event(1, body=None))
        steps = make_purge("stripe").steps()
        assert next(steps).kind == Kind.KEYS
        copy = WebhookDelivery(event_id=events[0].pk, provider="stripe", outcome="duplicate")
        copy.status = 200
        copy.save()
        assert orphans() == 1
        for _ in steps:
            pass
        assert list(WebhookDelivery.objects.all()) == [kept]
