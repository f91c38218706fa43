"""What a handler can do to the transaction it shares, and what passing faults can do to a finish.

Each of these once cost an effect or doubled one, without any race.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.utils import timezone

from django_webhook_idempotency import ledger
from django_webhook_idempotency.decorators import idempotent_webhook
from django_webhook_idempotency.exceptions import Ignore, Reject
from django_webhook_idempotency.handlers import registry
from django_webhook_idempotency.models import HandlerRun, WebhookDelivery, WebhookEvent
from tests.app.models import Effect
from tests.deliveries import deliver

pytestmark = pytest.mark.django_db(transaction=True)

TAKEN = -1  # primary key of an effect that is there already; no sequence comes to it
ROLLBACK_ONLY = "The handler went on after a database error"


def webhook_settings(settings: Any, **changes: Any) -> None:
    settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, **changes}


def effects() -> list[str]:
    return list(Effect.objects.exclude(pk=TAKEN).order_by("name").values_list("name", flat=True))


def event_status() -> list[str]:
    return list(WebhookEvent.objects.values_list("status", flat=True))


def swallow_through_the_orm() -> None:
    with suppress(DatabaseError):
        Effect.objects.create(pk=TAKEN)


def swallow_past_django() -> None:
    with suppress(DatabaseError), connection.cursor() as cursor:
        cursor.execute("INSERT INTO testapp_effect (id, event_id, name) VALUES (-1, '', '')")


def ask_for_a_rollback() -> None:
    transaction.set_rollback(True)


def close_the_connection() -> None:
    connection.close()


BREAKERS = [
    swallow_through_the_orm,
    swallow_past_django,
    ask_for_a_rollback,
    close_the_connection,
]


class TestABrokenTransaction:
    """WB-037: what can't be committed is a failure, never acknowledged."""

    @pytest.fixture(autouse=True)
    def taken(self) -> None:
        Effect.objects.create(pk=TAKEN)

    @pytest.mark.parametrize("store_deliveries", [True, False])
    @pytest.mark.parametrize("breaks", BREAKERS)
    def test_of_one_handler(
        self,
        client: Client,
        handlers: Any,
        settings: Any,
        store_deliveries: bool,
        breaks: Callable[[], None],
    ) -> None:
        webhook_settings(settings, STORE_DELIVERIES=store_deliveries)

        def handler(event: WebhookEvent) -> None:
            Effect.objects.create(name="one")
            if event.attempts == 1:
                breaks()

        handlers.add(handler)
        answer = deliver(client, "stripe")
        if answer.status_code == 200:
            # Only where the database undoes no more than the statement that failed.
            assert breaks is swallow_past_django
            assert connection.vendor != "postgresql"
        else:
            assert (answer.status_code, effects(), event_status()) == (500, [], ["failed"])
            assert deliver(client, "stripe").json()["status"] == "processed"
        assert (effects(), event_status()) == (["one"], ["processed"])

    @pytest.mark.parametrize("breaks", BREAKERS[:3])
    def test_of_one_of_two_handlers(
        self, client: Client, handlers: Any, breaks: Callable[[], None]
    ) -> None:
        """WB-079: the other handler keeps its effect, and the broken one runs again."""

        def handler(event: WebhookEvent) -> None:
            Effect.objects.create(name="one")
            if event.attempts == 1:
                breaks()

        handlers.add(handler)
        handlers.add(lambda event: Effect.objects.create(name="two"))
        answer = deliver(client, "stripe")
        if answer.status_code == 200:
            assert breaks is swallow_past_django
            assert connection.vendor != "postgresql"
        else:
            assert (effects(), event_status()) == (["two"], ["failed"])
            assert deliver(client, "stripe").json()["status"] == "processed"
        assert (effects(), event_status()) == (["one", "two"], ["processed"])

    def test_says_what_to_do(self, client: Client, handlers: Any) -> None:
        handlers.add(lambda event: swallow_through_the_orm())
        deliver(client, "stripe")
        assert HandlerRun.objects.get().error_message.startswith(ROLLBACK_ONLY)


@pytest.mark.parametrize("store_deliveries", [True, False])
@pytest.mark.only_on("postgresql", "mysql")
def test_a_deadlock_that_the_handler_swallows_is_tried_again(
    client: Client, handlers: Any, settings: Any, store_deliveries: bool
) -> None:
    """WB-046: MariaDB undoes the claim with the rest, and would commit what comes afterwards."""
    webhook_settings(settings, STORE_DELIVERIES=store_deliveries)
    rows = [Effect.objects.create(name="row") for _ in range(2)]
    holds_second = threading.Event()
    runs: list[int] = []

    def other() -> None:
        try:
            with transaction.atomic():
                # The heavier transaction is not the one that MariaDB sacrifices.
                Effect.objects.bulk_create(Effect(name="ballast") for _ in range(300))
                Effect.objects.select_for_update().get(pk=rows[1].pk)
                holds_second.set()
                Effect.objects.select_for_update().get(pk=rows[0].pk)
        except OperationalError:  # PostgreSQL's choice of the two
            pass
        finally:
            connection.close()

    thread = threading.Thread(target=other)

    def handler(event: WebhookEvent) -> None:
        runs.append(1)
        Effect.objects.create(name="before")
        if len(runs) == 1:
            Effect.objects.select_for_update().get(pk=rows[0].pk)
            thread.start()
            assert holds_second.wait(20)
            with suppress(OperationalError):
                Effect.objects.select_for_update().get(pk=rows[1].pk)
        Effect.objects.create(name="after")

    handlers.add(handler)
    answer = deliver(client, "stripe")
    thread.join()
    Effect.objects.filter(name__in=["row", "ballast"]).delete()
    if answer.status_code != 200:  # PostgreSQL: the transaction is aborted, a plain failure
        assert (effects(), event_status()) == ([], ["failed"])
        assert deliver(client, "stripe").status_code == 200
    assert (effects(), event_status()) == (["after", "before"], ["processed"])
    assert deliver(client, "stripe").json()["status"] == "duplicate"
    assert effects() == ["after", "before"]


@pytest.mark.parametrize("atomic", [True, False])
def test_nothing_is_accepted_while_autocommit_is_off(
    client: Client, handlers: Any, atomic: bool
) -> None:
    """WB-038: what the receiver writes would be committed by somebody else, or by nobody."""
    handlers.add(lambda event: Effect.objects.create(name="one"), atomic=atomic)
    transaction.set_autocommit(False)
    try:
        answer = deliver(client, "stripe")
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)
    assert (answer.status_code, answer.json()) == (503, {"status": "misconfigured"})
    assert (effects(), event_status()) == ([], [])


EVENTS = f'[`"]?{WebhookEvent._meta.db_table}[`"]? '
#: The beginnings of statements: the insert that claims, the update that finishes.
CLAIM = f"(SET STATEMENT .* FOR )?INSERT INTO {EVENTS}"
FINISH = f"UPDATE {EVENTS}"


class Faults:
    """Makes the next statements that begin in a certain way fail as the database would."""

    def __init__(self) -> None:
        self.beginning = ""
        self.left = 0
        self.before: Callable[[], None] | None = None

    def arm(self, beginning: str, times: int = 1) -> None:
        self.beginning, self.left = beginning, times

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if self.left and re.match(self.beginning, sql):
            self.left -= 1
            if self.before is None:
                raise passing_fault()
            self.before()
        return execute(sql, params, many, context)


def passing_fault() -> OperationalError:
    """An error that a second try may not meet."""
    if connection.vendor == "postgresql":
        import psycopg

        error = OperationalError("could not serialize access")
        error.__cause__ = psycopg.errors.SerializationFailure("could not serialize access")
        return error
    if connection.vendor == "mysql":
        return OperationalError(1213, "Deadlock found when trying to get lock")
    return OperationalError("database is locked")


@pytest.fixture
def faults() -> Iterator[Faults]:
    armed = Faults()
    with connection.execute_wrapper(armed):
        yield armed


@pytest.mark.parametrize("first_failure", [True, False])
def test_a_passing_fault_does_not_lose_the_record_of_a_failure(
    client: Client, handlers: Any, faults: Faults, first_failure: bool
) -> None:
    """WB-046: an event that failed must be there to run again, above all where nobody retries."""
    if not first_failure:
        handlers.add(fail)
        deliver(client, "github")
        registry.remove(fail)

    def handler(event: WebhookEvent) -> None:
        faults.arm(CLAIM if first_failure else FINISH)
        raise ValueError("no")

    handlers.add(handler)
    assert deliver(client, "github").status_code == 500
    assert faults.left == 0
    event = WebhookEvent.objects.get()
    assert (event.status, event.attempts) == ("failed", 1 if first_failure else 2)
    assert HandlerRun.objects.count() == event.attempts


def fail(event: WebhookEvent) -> None:
    raise ValueError("no")


@pytest.mark.parametrize("statement", ["INSERT INTO", FINISH])
def test_a_passing_fault_does_not_lose_the_end_of_a_leased_run(
    client: Client, handlers: Any, faults: Faults, statement: str
) -> None:
    """The handler has done its work outside: forgetting that would make it do it again."""

    def handler(event: WebhookEvent) -> None:
        Effect.objects.create(name="one")
        faults.arm(statement, times=2)

    handlers.add(handler, atomic=False)
    assert deliver(client, "stripe").json()["status"] == "processed"
    assert faults.left == 0
    assert (effects(), event_status()) == (["one"], ["processed"])
    assert HandlerRun.objects.count() == 1
    assert WebhookDelivery.objects.count() == 1


def test_a_passing_fault_in_a_leased_claim_is_met_again(
    client: Client, handlers: Any, faults: Faults
) -> None:
    handlers.add(lambda event: Effect.objects.create(name="one"), atomic=False)
    faults.arm(CLAIM, times=2)
    assert deliver(client, "stripe").json()["status"] == "processed"
    assert faults.left == 0


@pytest.mark.only_on("postgresql", "mysql")
def test_a_deadlock_of_an_atomic_handler_beside_a_leased_one_is_tried_again(
    client: Client, handlers: Any
) -> None:
    runs: list[int] = []

    def atomic(event: WebhookEvent) -> None:
        Effect.objects.create(name="atomic")
        runs.append(1)
        if len(runs) == 1:
            raise passing_fault()

    handlers.add(atomic)
    handlers.add(lambda event: Effect.objects.create(name="leased"), atomic=False)
    assert deliver(client, "stripe").json()["status"] == "processed"
    assert effects() == ["atomic", "leased"]


@pytest.mark.parametrize("raised", [Ignore("not ours"), Reject("never"), ValueError("no")])
def test_a_verdict_that_could_not_be_stored_is_not_given(
    client: Client, handlers: Any, settings: Any, faults: Faults, raised: Exception
) -> None:
    """A copy runs in the meantime and may still die, so nothing may end the provider's retries."""
    webhook_settings(settings, WAIT=0.2)
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 50")
    holds, release = threading.Event(), threading.Event()
    seen: list[WebhookEvent] = []

    def copy() -> None:
        try:
            with transaction.atomic():
                assert WebhookEvent.objects.insert_once(seen[0]).won
                holds.set()
                release.wait(60)
                transaction.set_rollback(True)
        finally:
            connection.close()

    thread = threading.Thread(target=copy)

    def come_first() -> None:
        thread.start()
        assert holds.wait(20)

    def handler(event: WebhookEvent) -> None:
        seen.append(WebhookEvent.objects.get(pk=event.pk))
        faults.before = come_first
        faults.arm(CLAIM)
        raise raised

    handlers.add(handler, "slack")
    try:
        answer = deliver(client, "slack")
    finally:
        release.set()
        thread.join()
    assert (answer.status_code, answer.json()["status"]) == (503, "in_progress")
    assert "x-slack-no-retry" not in answer.headers
    registry.remove(handler)
    handlers.add(lambda event: Effect.objects.create(name="one"))
    assert deliver(client, "slack").json()["status"] == "processed"
    assert effects() == ["one"]


def test_the_verdict_of_an_overtaken_run_is_not_given(client: Client, handlers: Any) -> None:
    """Whoever took the event over may still fail, so nothing may end the provider's retries."""

    def handler(event: WebhookEvent) -> None:
        WebhookEvent.objects.update(
            lease_token="other", lease_expires_at=timezone.now() + timedelta(minutes=1)
        )
        raise Reject("never")

    handlers.add(handler, "slack", atomic=False)
    answer = deliver(client, "slack")
    assert (answer.status_code, answer.json()["status"]) == (503, "in_progress")
    assert "x-slack-no-retry" not in answer.headers
    assert WebhookEvent.objects.get().lease_token == "other"


def test_each_claim_of_a_stored_event_counts() -> None:
    """Two redeliveries read the same row; the second claims it after the first has failed."""
    WebhookEvent.objects.create(status="failed", attempts=1, dedupe_key="key")
    early = WebhookEvent.objects.get()
    WebhookEvent.objects.update(attempts=2)
    assert ledger.take(early, "token", timedelta(minutes=1), exclusive=False)
    assert WebhookEvent.objects.get().attempts == 3


@pytest.mark.only_on("postgresql", "mysql")
def test_a_view_that_refuses_takes_back_only_its_own_claim(settings: Any, faults: Faults) -> None:
    """Between reading the row and deleting it the lease may run out and be somebody else's."""
    taken: list[int] = []

    def take_over() -> None:
        def other() -> None:
            try:
                with connection.cursor() as cursor:
                    if connection.vendor == "postgresql":
                        cursor.execute("SET lock_timeout = '200ms'")
                    else:
                        cursor.execute("SET innodb_lock_wait_timeout = 1")
                taken.append(WebhookEvent.objects.update(lease_token="other"))
            except OperationalError:
                taken.append(0)
            finally:
                connection.close()

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    @idempotent_webhook(key="X-Key", atomic=False)
    def view(request: Any) -> HttpResponse:
        faults.before = take_over
        faults.arm("DELETE FROM")
        return HttpResponse(status=403)

    view(RequestFactory().post("/", b"{}", "application/json", headers={"X-Key": "1"}))
    assert len(taken) == 1
    assert WebhookEvent.objects.count() == taken[0]
