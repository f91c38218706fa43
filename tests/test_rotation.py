"""Which secrets verified the deliveries, and what can be said of the old one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, InterfaceError, connection
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.utils import timezone

from django_webhook_idempotency.decorators import idempotent_webhook
from django_webhook_idempotency.dispatch import secret_uses
from django_webhook_idempotency.dispatch.rotation import SecretState, secret_states
from django_webhook_idempotency.dispatch.secret_uses import note_use, notes
from django_webhook_idempotency.models import SecretUse, WebhookEvent
from django_webhook_idempotency.providers import configured_provider
from django_webhook_idempotency.signatures import Secret
from tests.deliveries import deliver

OLD, NEW, NEXT = "whsec_the_old_one", "whsec_the_new_one", "whsec_of_next_year"
CAN_GO = "has not been used for 7 days: it can go"

pytestmark = pytest.mark.django_db

Configure = Callable[..., None]


def fingerprint(secret: str) -> str:
    return Secret.parse(secret).fingerprint


@pytest.fixture
def configure(settings: Any) -> Configure:
    """Give a function that gives Stripe its secrets."""

    def change(*secrets: Any, **options: Any) -> None:
        settings.WEBHOOK_IDEMPOTENCY = {
            "PROVIDERS": {"stripe": {"SECRETS": list(secrets), **options}}
        }

    return change


def used(secret: str, days: float, first: float = 100) -> None:
    now = timezone.now()
    SecretUse.objects.create(
        provider="stripe",
        fingerprint=fingerprint(secret),
        first_used_at=now - timedelta(days=first),
        last_used_at=now - timedelta(days=days),
    )


def states() -> dict[str, SecretState]:
    found = secret_states(configured_provider("stripe"), timezone.now())
    return {state.fingerprint: state for state in found}


class TestNotes:
    def test_a_verified_delivery_leaves_its_secret_and_its_time(
        self, client: Client, configure: Configure
    ) -> None:
        configure(NEW, OLD)
        before = timezone.now()
        deliver(client, "stripe")
        use = SecretUse.objects.get()
        assert (use.provider, use.fingerprint) == ("stripe", fingerprint(NEW))
        assert before <= use.first_used_at == use.last_used_at <= timezone.now()

    def test_a_copy_and_a_handshake_are_signs_of_life_too(self, client: Client) -> None:
        deliver(client, "stripe")
        notes.forget()
        first = SecretUse.objects.get().last_used_at
        deliver(client, "stripe")
        use = SecretUse.objects.get()
        assert use.last_used_at > first == use.first_used_at
        body = b'{"type": "url_verification", "challenge": "x"}'
        assert deliver(client, "slack", body=body).content == b"x"
        assert SecretUse.objects.filter(provider="slack").count() == 1

    def test_what_is_refused_is_none(self, client: Client) -> None:
        client.post("/webhooks/stripe/", b"{}", "application/json")
        deliver(client, "stripe", headers={"Stripe-Signature": "t=1,v1=00"})
        assert not SecretUse.objects.exists()

    def test_who_signs_nothing_is_noted_without_a_secret(self) -> None:
        @idempotent_webhook(key="X-Id", provider="partner")
        def view(request: Any) -> HttpResponse:
            return HttpResponse(status=204 if request.headers.get("X-Known") else 403)

        def ask(**headers: str) -> int:
            request = RequestFactory().post("/", b"{}", "application/json", headers=headers)
            return view(request).status_code

        assert ask(**{"X-Id": "1"}) == 403
        assert not SecretUse.objects.exists()
        assert ask(**{"X-Id": "1", "X-Known": "yes"}) == 204
        assert SecretUse.objects.values_list("provider", "fingerprint").get() == ("partner", "")

    def test_one_process_writes_once_a_minute(
        self, client: Client, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = timezone.now()
        with django_assert_num_queries(3) as captured:
            note_use("stripe", "00000000", now)
        assert "INSERT" in captured[-1]["sql"]
        with django_assert_num_queries(0):
            for _ in range(100):
                note_use("stripe", "00000000", now + timedelta(seconds=30))
        monkeypatch.setattr(secret_uses, "EVERY", 0.0)
        with django_assert_num_queries(1):
            note_use("stripe", "00000000", now + timedelta(seconds=61))
        assert SecretUse.objects.get().last_used_at == now + timedelta(seconds=61)

    def test_a_later_time_is_never_replaced_by_an_earlier(self) -> None:
        now = timezone.now()
        for offset in (0, -60, -3600):
            notes.forget()
            note_use("stripe", "00000000", now + timedelta(seconds=offset))
        assert SecretUse.objects.get().last_used_at == now

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("problem", [DatabaseError, InterfaceError])
    def test_a_database_that_fails_is_in_nobodys_way_and_asked_again(
        self, client: Client, caplog: pytest.LogCaptureFixture, problem: type[Exception]
    ) -> None:
        def fail(execute: Any, sql: str, *rest: Any) -> Any:
            if "secretuse" in sql:
                raise problem("read-only")
            return execute(sql, *rest)

        with connection.execute_wrapper(fail):
            assert deliver(client, "stripe").status_code == 200
        assert f"webhook use of a secret not noted: {problem.__name__}" in caplog.text
        assert not SecretUse.objects.exists()
        deliver(client, "stripe")
        assert SecretUse.objects.count() == 1


@pytest.mark.django_db(transaction=True)
class TestBesideTheHandler:
    def test_it_is_written_after_the_handlers_transaction(
        self, client: Client, handlers: Any
    ) -> None:
        seen: list[bool] = []

        def collect(execute: Any, sql: str, *rest: Any) -> Any:
            if "secretuse" in sql and not sql.startswith("INSERT"):
                seen.append(connection.in_atomic_block)
                assert WebhookEvent.objects.filter(status="processed").exists()
            return execute(sql, *rest)

        handlers.add(lambda event: None)
        with connection.execute_wrapper(collect):
            assert deliver(client, "stripe").status_code == 200
        assert seen and not any(seen)

    def test_several_at_once_leave_one_row(self) -> None:
        start = threading.Barrier(6)
        now = timezone.now()

        def note(number: int) -> None:
            start.wait()
            try:
                secret_uses.write_use("stripe", "00000000", now + timedelta(seconds=number))
            finally:
                connection.close()

        threads = [threading.Thread(target=note, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert SecretUse.objects.count() == 1


class TestAdvice:
    def test_the_old_one_can_go_when_it_rested_for_a_week_and_the_new_one_did_not(
        self, configure: Configure
    ) -> None:
        configure(NEW, OLD)
        used(NEW, days=0.1)
        used(OLD, days=7.1)
        found = states()
        assert found[fingerprint(OLD)].remark == f"the old secret {fingerprint(OLD)} {CAN_GO}"
        assert found[fingerprint(NEW)].remark == ""

    @pytest.mark.parametrize(("new", "old"), [(0.1, 6.9), (7.1, 7.2), (0.1, 0.2)])
    def test_it_has_to_stay_before_that(self, configure: Configure, new: float, old: float) -> None:
        configure(NEW, OLD)
        used(NEW, days=new)
        used(OLD, days=old)
        assert not any(state.can_go for state in states().values())

    def test_one_that_was_never_used_may_be_the_next(self, configure: Configure) -> None:
        configure(NEXT, NEW)
        used(NEW, days=0.1)
        state = states()[fingerprint(NEXT)]
        assert (state.last_used_at, state.can_go, state.remark) == (None, False, "")

    def test_the_only_one_never_can_go(self, configure: Configure) -> None:
        configure(OLD)
        used(OLD, days=30)
        used(NEW, days=0)  # somewhere, but not in the settings
        assert not states()[fingerprint(OLD)].can_go

    def test_one_that_ends_by_itself_is_shown_so(self, configure: Configure) -> None:
        soon = datetime.now(UTC) + timedelta(days=1)
        past = datetime.now(UTC) - timedelta(days=1)
        ending, ended = {"SECRET": OLD, "UNTIL": soon}, {"SECRET": NEXT, "UNTIL": past}
        configure(NEW, ending, ended)
        used(NEW, days=0)
        used(OLD, days=9)
        found = states()
        assert found[fingerprint(OLD)].remark == f"ends by itself at {soon.isoformat()}"
        assert found[fingerprint(NEXT)].remark == f"ended at {past.isoformat()}"
        assert not found[fingerprint(NEXT)].live
        assert not any(state.can_go for state in found.values())

    def test_an_ended_one_is_no_reason_to_let_another_go(self, configure: Configure) -> None:
        past = datetime.now(UTC) - timedelta(hours=1)
        configure({"SECRET": NEW, "UNTIL": past}, OLD)
        used(NEW, days=0.1)
        used(OLD, days=8)
        assert not states()[fingerprint(OLD)].can_go

    def test_others_that_are_used_are_told_of_the_newest_first(self, configure: Configure) -> None:
        configure(NEW)
        for number in range(20):
            used(f"of-a-tenant-{number}", days=number)
        found = list(states().values())
        assert [state.configured for state in found] == [True, *[False] * 10]
        assert [state.fingerprint for state in found[1:]] == [
            fingerprint(f"of-a-tenant-{number}") for number in range(10)
        ]

    def test_secrets_that_depend_on_the_scope_are_among_the_others(self, settings: Any) -> None:
        secrets = {"a": [OLD]}
        settings.WEBHOOK_IDEMPOTENCY = {
            "PROVIDERS": {"stripe": {"SECRETS": lambda scope: secrets[scope]}}
        }
        used(OLD, days=1)
        assert [state.remark for state in states().values()] == ["not in the settings"]


class TestStatus:
    def test_the_command_says_it(self, configure: Configure) -> None:
        configure(NEW, OLD, NEXT)
        used(NEW, days=0)
        used(OLD, days=9)
        out = StringIO()
        call_command("webhooks_status", stdout=out)
        lines = [line for line in out.getvalue().splitlines() if "secret" in line]
        new, old, following = map(fingerprint, (NEW, OLD, NEXT))
        assert lines == [
            f"stripe: secret {new} last used 0:00:00 ago",
            f"stripe: secret {old} last used 9 days, 0:00:00 ago; the old secret {old} {CAN_GO}",
            f"stripe: secret {following} never used",
        ]
        assert not any(secret in out.getvalue() for secret in (NEW, OLD, NEXT))

    def test_a_machine_is_told_as_well(self, configure: Configure) -> None:
        configure(NEW, OLD)
        used(NEW, days=0)
        used(OLD, days=9)
        out = StringIO()
        call_command("webhooks_status", "--json", stdout=out)
        stripe = json.loads(out.getvalue())["providers"]["stripe"]
        assert stripe["heard_at"] == stripe["secrets"][0]["last_used_at"] is not None
        assert stripe["silent_since"] is None
        assert [secret["can_go"] for secret in stripe["secrets"]] == [False, True]
        assert NEW not in out.getvalue()
