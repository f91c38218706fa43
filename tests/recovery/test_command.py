"""`recover_webhooks`, and the Celery task that does the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from celery import Celery
from django.core.management import call_command
from django.core.management.base import CommandError

from django_webhook_idempotency.models import RecoveryCursor
from django_webhook_idempotency.names import RECOVER
from django_webhook_idempotency.recovery import RateLimited, SourceError
from tests.app.models import Effect
from tests.celery_apps import no_celery_apps
from tests.recovery.sources import Ledger, sent

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def ledger(settings: Any, handlers: Any) -> Iterator[None]:
    """Let two events be missing."""
    handlers.add(
        lambda event: Effect.objects.create(event_id=event.event_id), "stripe", "invoice.*"
    )
    own = {"SECRETS": ["x"], "RECOVERY": {"SOURCE": "tests.recovery.sources.Ledger"}}
    settings.WEBHOOK_IDEMPOTENCY = {
        "PROVIDERS": {"stripe": own, "slack": {"SECRETS": ["x"]}},
    }
    Ledger.events, Ledger.problem, Ledger.asked = [sent("evt_1"), sent("evt_2")], None, []
    yield
    Ledger.events, Ledger.problem = [], None


def recover(*arguments: str) -> str:
    out = StringIO()
    call_command("recover_webhooks", *arguments, stdout=out)
    return out.getvalue()


def test_says_what_it_did():
    since = datetime.now(UTC) - timedelta(days=30)
    assert recover() == (
        f"stripe main, sent since {since:%Y-%m-%d %H:%M} UTC:\n"
        "  found                            2\n"
        "  ingested                         2\n"
    )
    assert Effect.objects.count() == 2


def test_dry_run():
    said = recover("--dry-run")
    assert ", and nothing was done:\n" in said
    assert "ingested                         2" in said
    assert Effect.objects.count() == 0
    assert not RecoveryCursor.objects.exists()


def test_limit():
    assert "the limit was reached" in recover("--limit", "1")
    assert Effect.objects.count() == 1
    recover("--limit", "1")
    assert Effect.objects.count() == 2


def test_since():
    recover("--since", "30m")
    assert Effect.objects.count() == 0
    recover("--since", "2h")
    assert Effect.objects.count() == 2


def test_json():
    (report,) = json.loads(recover("--json"))
    assert (report["source"], report["ingested"], report["problems"]) == ("stripe main", 2, [])
    assert datetime.fromisoformat(report["since"]) < datetime.now(UTC)


def test_quiet():
    assert recover("-v", "0") == ""


def test_a_problem_is_an_error():
    Ledger.problem = SourceError("The network is away.")
    with pytest.raises(CommandError, match="stripe main: The network is away") as error:
        recover()
    assert error.value.returncode == 1
    assert Effect.objects.count() == 2


def test_a_long_pause_is_another():
    Ledger.problem = RateLimited(3600)
    with pytest.raises(CommandError, match="longer pause: stripe main") as error:
        recover()
    assert error.value.returncode == 3


def test_a_provider_that_is_named():
    with pytest.raises(CommandError, match="Provider 'slack' has no RECOVERY"):
        recover("slack")
    with pytest.raises(CommandError, match="Provider 'nobody'"):
        recover("nobody")
    assert "ingested" in recover("stripe")


def test_one_that_is_set_up_wrongly_keeps_no_other_from_its_turn(settings):
    providers = settings.WEBHOOK_IDEMPOTENCY["PROVIDERS"]
    wrong = {"SECRETS": ["x"], "RECOVERY": {}}
    settings.WEBHOOK_IDEMPOTENCY = {
        "PROVIDERS": {"slack": wrong, **{"stripe": providers["stripe"]}}
    }
    with pytest.raises(CommandError, match="Nothing is built in that asks provider 'slack'"):
        recover()
    assert Effect.objects.count() == 2


def test_the_task():
    import django_webhook_idempotency.tasks  # noqa: F401

    with no_celery_apps():
        app = Celery("recovering", broker="memory://", set_as_current=False)
        app.finalize()
        app.tasks[RECOVER]()
    assert Effect.objects.count() == 2
