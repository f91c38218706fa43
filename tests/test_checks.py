"""Every check id: what makes it fire, what keeps it silent, and what it never shows."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest
from celery import Celery
from django.conf import settings
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from rest_framework.decorators import api_view
from rest_framework.views import APIView

import django_webhook_idempotency
from django_webhook_idempotency import checks
from django_webhook_idempotency.checks.environment import check_packet
from django_webhook_idempotency.decorators import idempotent_webhook
from django_webhook_idempotency.dispatch.engines.database import DatabaseEngine
from django_webhook_idempotency.entry import open_to_providers
from django_webhook_idempotency.models import WebhookEvent
from django_webhook_idempotency.providers import Provider
from django_webhook_idempotency.rest_framework.views import WebhookAPIView
from django_webhook_idempotency.schedule import beat_schedule
from django_webhook_idempotency.stores.database import DatabaseStore
from django_webhook_idempotency.views import StripeWebhookView, WebhookView
from tests.celery_apps import forget_choices, no_celery_apps

SECRETS = ["whsec_0123456789abcdef"]
GOOD = {"SECRETS": SECRETS}
STANDARD = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
DAY = timedelta(days=1)


def messages(**webhook_settings: Any) -> list[CheckMessage]:
    """What the checks say of some settings; with `urls`, of a URLconf that holds these views."""
    with override_settings(WEBHOOK_IDEMPOTENCY=webhook_settings):
        return found()


def found(databases: Sequence[str] = ()) -> list[CheckMessage]:
    # From Django 6.1 on None means all of them.
    said = run_checks(tags=[checks.TAG], databases=list(databases))
    for message in said:
        assert message.id in checks.IDS
        assert message.hint
        assert message.id.removeprefix("webhooks.")[0] == ("E" if message.level == 40 else "W")
    return said


def ids(said: list[CheckMessage]) -> list[str]:
    return sorted(str(message.id).removeprefix("webhooks.") for message in said)


def of(**options: Any) -> list[CheckMessage]:
    """What the checks say of a Stripe entry with these options."""
    return messages(PROVIDERS={"stripe": {**GOOD, **options}})


class InProcess(DatabaseStore):
    shared = False


class Shapeless(DatabaseStore):
    exclusive = None  # type: ignore[assignment]


class UnmakableEngine(DatabaseEngine):
    def __init__(self, address: str) -> None:
        raise AssertionError("never reached: the argument is missing")


class ShapelessEngine(DatabaseEngine):
    sends_messages = None  # type: ignore[assignment]


class Unmakable(DatabaseStore):
    def __init__(self, address: str) -> None:
        raise AssertionError("never reached: the argument is missing")


class Lacking:
    exclusive = True

    def acquire(self) -> Any: ...


class Contradictory(Provider):
    is_signed: ClassVar[bool] = False

    def problems(self) -> list[str]:
        return ["one option says yes and another no."]


class Picky(Provider):
    is_signed: ClassVar[bool] = False

    def __init__(self, slug: str = "", values: Any = None) -> None:
        super().__init__(slug, values)
        if values:
            from django.core.exceptions import ImproperlyConfigured

            raise ImproperlyConfigured("WAIT and LEASE do not go together.")


def secrets_of_tenant(scope: str) -> list[str]:
    raise AssertionError("a check must not call it: it may ask the database")


HERE = __name__
EXPIRED = {"SECRET": "whsec_0123456789abcdef", "UNTIL": datetime(2020, 1, 1, tzinfo=UTC)}


class TestSettings:
    """E001 to E004 and E029."""

    @pytest.mark.parametrize(
        "value",
        [[], {"PROVIDERS": ["stripe"]}, {"PROVIDERS": {"stripe": "x"}}, {"PROVIDERS": {1: {}}}],
    )
    def test_e001_a_wrong_shape(self, value: Any) -> None:
        with override_settings(WEBHOOK_IDEMPOTENCY=value):
            assert ids(found()) == ["E001"]

    @pytest.mark.parametrize(
        ("slug", "entry"),
        [
            ("strpe", {"RETENTION": 90 * DAY}),
            ("acme", {}),
            ("acme", GOOD),
            ("acme", {"CLASS": "acme.nowhere.Acme"}),
            ("acme", {"CLASS": f"{HERE}.InProcess"}),
        ],
    )
    def test_e002_a_provider_that_is_not_known(self, slug: str, entry: Any) -> None:
        said = messages(PROVIDERS={slug: entry, "stripe": GOOD})
        assert ids(said) == ["E002"]
        assert ("Did you mean 'stripe'" in str(said[0].hint)) == (slug == "strpe")

    @pytest.mark.parametrize(
        "entry", [{"CLASS": f"{HERE}.Contradictory"}, {"CLASS": Provider, **GOOD}]
    )
    def test_e002_is_silent_for_a_class_of_the_projects_own(self, entry: Any) -> None:
        assert "E002" not in ids(messages(PROVIDERS={"acme": entry}))

    def test_e002_is_silent_for_the_retention_of_keyed_deliveries(self) -> None:
        assert messages(PROVIDERS={"partner": {"RETENTION": 45 * DAY}}) == []

    def test_e003_an_unknown_option(self) -> None:
        said = of(SECRET="x", max_body=3)
        assert ids(said) == ["E003", "E003"]
        assert "['stripe']['SECRET'] is not an option of 'stripe'" in said[0].msg
        assert "Did you mean 'SECRETS'?" in str(said[0].hint)
        assert "Did you mean 'MAX_BODY'?" in str(said[1].hint)

    def test_e003_an_unknown_setting_at_the_top(self) -> None:
        said = messages(WAITT=1, PROVIDERS={"stripe": GOOD, "github": GOOD})
        assert [message.msg for message in said if message.id != "webhooks.W020"] == [
            "WEBHOOK_IDEMPOTENCY['WAITT'] is not an option."
        ]
        said = messages(PROVIDER={"stripe": GOOD})
        assert ids(said) == ["E003"]
        assert "Did you mean 'PROVIDERS'?" in str(said[0].hint)
        assert ids(messages(CLASS="x", PROVIDERS={"stripe": GOOD})) == ["E003"]

    def test_e003_what_stands_one_level_too_deep_or_too_high(self) -> None:
        (deep,) = of(QUEUE="celery")
        assert "write WEBHOOK_IDEMPOTENCY['QUEUE']" in str(deep.hint)
        (high,) = messages(stripe=GOOD)
        assert "write WEBHOOK_IDEMPOTENCY['PROVIDERS']['stripe']" in str(high.hint)
        assert {deep.id, high.id} == {"webhooks.E003"}

    def test_e003_an_option_that_only_some_know(self) -> None:
        said = messages(ACCEPT_SHA1=True, PROVIDERS={"stripe": GOOD, "github": GOOD})
        assert [message.msg for message in said if message.id == "webhooks.E003"] == [
            "WEBHOOK_IDEMPOTENCY['ACCEPT_SHA1'] is not an option of 'stripe'."
        ]

    def test_e004_each_value_that_does_not_fit(self) -> None:
        said = of(WAIT=-1, LEASE=60, STORE_BODY=False)
        assert ids(said) == ["E004"] * 3
        assert said[1].msg == (
            "WEBHOOK_IDEMPOTENCY['PROVIDERS']['stripe']['LEASE'] should be a "
            "datetime.timedelta of half a second or more."
        )

    def test_e004_once_for_a_value_that_all_providers_share(self) -> None:
        assert ids(messages(WAIT="1", PROVIDERS={"stripe": GOOD, "sangho": GOOD})) == ["E004"]

    def test_a_value_that_does_not_fit_hides_nothing_else(self) -> None:
        said = of(WAIT=-1, NONSENSE=1, RETENTION=DAY, SECRETS=[])
        assert ids(said) == ["E003", "E004", "E005", "E018", "W019", "W019"]

    @pytest.mark.parametrize("options", [{"WAIT": 1}, {"SECONDARY_KEY_TYPES": ["charge.ok"]}])
    def test_e003_and_e004_are_silent_for_what_fits(self, options: Any) -> None:
        assert of(**options) == []
        assert messages(PROVIDERS={"stripe": GOOD}, STORE="database", PROCESSING="inline") == []

    def test_e029_options_that_contradict_each_other(self) -> None:
        said = messages(PROVIDERS={"acme": {"CLASS": f"{HERE}.Contradictory"}})
        assert ids(said) == ["E029"]
        assert "one option says yes" in said[0].msg
        picky = {"CLASS": f"{HERE}.Picky"}
        assert ids(messages(PROVIDERS={"acme": {**picky, "WAIT": 1}})) == ["E029"]
        assert messages(PROVIDERS={"acme": picky}) == []


class Imported(StripeWebhookView):
    processing = "queued"

    def handle(self, event: WebhookEvent) -> None: ...


class TestQueues:
    """E004, E037, E038 and W039."""

    @pytest.mark.parametrize(
        "value",
        [
            {"PROCESSING": "later", "PROVIDERS": {"stripe": GOOD}},
            {"PROVIDERS": {"stripe": {**GOOD, "PROCESSING": "later"}}},
        ],
    )
    def test_e004_processing(self, value: Any) -> None:
        assert ids(messages(**value)) == ["E004"]
        assert of(PROCESSING="inline") == of(PROCESSING="queued") == []
        assert messages(PROCESSING="queued", PROVIDERS={"stripe": GOOD}) == []

    @pytest.mark.parametrize(
        ("engine", "problem"),
        [
            ("nowhere.Engine", "cannot be imported"),
            (f"{HERE}.Lacking", "lacks enqueue"),
            (f"{HERE}.UnmakableEngine", "cannot be made"),
            (f"{HERE}.ShapelessEngine", "lacks `sends_messages`"),
        ],
    )
    def test_e037_an_engine_that_cannot_be_used(self, engine: str, problem: str) -> None:
        said = messages(QUEUE=engine, PROVIDERS={"stripe": GOOD})
        assert ids(said) == ["E037"]
        assert problem in said[0].msg
        assert messages(QUEUE="database", PROVIDERS={"stripe": GOOD}) == []

    @pytest.mark.parametrize("value", [0, -1, "1", True, None])
    def test_e038_a_time_that_is_none(self, value: Any) -> None:
        assert ids(messages(ENQUEUE_TIMEOUT=value, PROVIDERS={"stripe": GOOD})) == ["E038"]
        assert messages(ENQUEUE_TIMEOUT=0.5, PROVIDERS={"stripe": GOOD}) == []

    def test_w039_a_queued_view_that_no_worker_can_import(self, mount: Any) -> None:
        class Hidden(StripeWebhookView):
            def handle(self, event: WebhookEvent) -> None: ...

        assert ids(mount(Hidden.as_view(processing="queued"))) == ["W039"]
        assert mount(Hidden.as_view()) == mount(Imported.as_view()) == []


@pytest.fixture
def celery_project() -> Iterator[Celery]:
    """Give the one Celery app there is, by way of which something sweeps."""
    with no_celery_apps():
        app = Celery("project", broker="memory://", set_as_current=False)
        app.conf.beat_schedule = beat_schedule()
        yield app


class TestEngines:
    """E031, E032, W033, E034, E035 and W036."""

    def test_e031_celery_is_not_installed(self, monkeypatch: Any) -> None:
        monkeypatch.setitem(sys.modules, "celery", None)
        said = messages(QUEUE="celery")
        assert ids(said) == ["E031"]
        assert "django-webhook-idempotency[celery]" in said[0].msg

    def test_e032_no_celery_app_or_several(self, celery_project: Celery) -> None:
        assert messages(QUEUE="celery") == []
        other = Celery("other", set_as_current=False)
        assert messages(QUEUE="celery") == []
        # Celery makes the first one the default only where it was told of Django's settings.
        forget_choices()
        said = messages(QUEUE="celery")
        assert ids(said) == ["E032"]
        assert "several" in said[0].msg
        other.close()
        celery_project.close()
        said = messages(QUEUE="celery")
        assert ids(said) == ["E032"]
        assert "no Celery app" in said[0].msg

    def test_w033_nothing_sweeps(self, celery_project: Celery) -> None:
        celery_project.conf.beat_schedule = {}
        without = [name for name in settings.INSTALLED_APPS if name != "django_celery_beat"]
        with override_settings(INSTALLED_APPS=without):
            assert ids(messages(QUEUE="celery")) == ["W033"]
            celery_project.conf.beat_schedule = beat_schedule()
            assert messages(QUEUE="celery") == []
            celery_project.conf.beat_schedule = {}
        if len(without) < len(settings.INSTALLED_APPS):
            assert messages(QUEUE="celery") == []

    @pytest.mark.skipif(find_spec("django.tasks") is not None, reason="Django has tasks itself")
    def test_e034_no_tasks(self, monkeypatch: Any) -> None:
        monkeypatch.setitem(sys.modules, "django_tasks", None)
        monkeypatch.delitem(
            sys.modules, "django_webhook_idempotency.dispatch.engines.run_task", raising=False
        )
        said = messages(QUEUE="tasks")
        assert ids(said) == ["E034"]
        assert "django-webhook-idempotency[tasks]" in said[0].msg

    @pytest.mark.parametrize("option", [{"TASKS_BACKEND": "none"}, {"TASKS_QUEUE": "none"}])
    def test_e035_a_backend_that_does_not_take_it(self, option: dict[str, str]) -> None:
        assert messages(QUEUE="tasks") == []
        assert ids(messages(QUEUE="tasks", **option)) == ["E035"]

    def test_e035_a_backend_whose_tables_are_not_there(self) -> None:
        apps = [name for name in settings.INSTALLED_APPS if name != "django_tasks_db"]
        with override_settings(INSTALLED_APPS=apps):
            (said,) = messages(QUEUE="tasks")
        assert said.id == "webhooks.E035"
        assert "django_tasks_db" in str(said.hint)
        assert messages(QUEUE="tasks") == []

    @pytest.mark.parametrize("name", ["Immediate", "Dummy"])
    def test_w036_a_backend_that_is_no_queue(self, name: str) -> None:
        module = "django.tasks" if find_spec("django.tasks") else "django_tasks"
        path = f"{module}.backends.{name.lower()}.{name}Backend"
        with override_settings(TASKS={"default": {"BACKEND": path}}):
            assert ids(messages(QUEUE="tasks")) == ["W036"]


class TestSecrets:
    """E005 to E009 and E013; WB-065 and WB-066."""

    @pytest.mark.parametrize(
        "entry", [{}, {"SECRETS": None}, {"SECRETS": []}, {"SECRETS": [EXPIRED]}]
    )
    def test_e005_no_live_secret(self, entry: Any) -> None:
        assert ids(messages(PROVIDERS={"stripe": entry})) == ["E005"]

    @pytest.mark.parametrize("entry", ["", "   ", b"\n", None, "whsec_", 7, {"SECRET": ""}])
    def test_e006_an_entry_that_is_empty(self, entry: Any) -> None:
        assert ids(of(SECRETS=[entry])) == ["E006"]
        assert ids(of(SECRETS=[*GOOD["SECRETS"], entry])) == ["E006"]

    @pytest.mark.parametrize(
        "entry", [{**EXPIRED, "UNTIL": "2030"}, {**EXPIRED, "UNTILL": None}, {"secret": "whsec_x"}]
    )
    def test_e006_an_entry_of_the_wrong_form(self, entry: Any) -> None:
        assert ids(of(SECRETS=[*GOOD["SECRETS"], entry])) == ["E006"]

    @pytest.mark.parametrize(
        ("provider", "secret"),
        [
            ("stripe", "sk_live_0123456789abcdef"),
            ("stripe", "'whsec_0123456789abcdef'"),
            ("sangho", "v1,whsec_0123456789abcdef"),
            ("standard_webhooks", "whsec_short"),
            ("standard_webhooks", "whsec_%%%"),
        ],
    )
    def test_e007_a_secret_of_another_form(self, provider: str, secret: str) -> None:
        said = messages(PROVIDERS={provider: {"SECRETS": [secret]}})
        assert ids(said) == ["E007"]
        assert secret not in f"{said[0].msg} {said[0].hint}"

    @pytest.mark.parametrize("secret", ["whsec_0123\n", " whsec_0123", b"whsec_0123 "])
    def test_w008_white_space_around_it(self, secret: Any) -> None:
        assert ids(of(SECRETS=[secret])) == ["W008"]
        assert ids(of(SECRETS=[{"SECRET": secret}])) == ["W008"]

    @pytest.mark.parametrize(
        "value",
        [
            "whsec_0123456789abcdef",
            b"whsec_x",
            {"SECRET": "x"},
            7,
            "tests.nowhere.secrets",
            f"{HERE}.DAY",
        ],
    )
    def test_e009_no_list(self, value: Any) -> None:
        said = of(SECRETS=value)
        assert ids(said) == ["E009"]
        assert "0123456789abcdef" not in f"{said[0].msg} {said[0].hint}"

    def test_e013_a_key_without_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import base64

        key = "whpk_" + base64.b64encode(b"k" * 32).decode()
        settings = {"PROVIDERS": {"standard_webhooks": {"SECRETS": [key]}}}
        assert messages(**settings) == []
        monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
        monkeypatch.delitem(
            sys.modules, "django_webhook_idempotency.signatures.ed25519", raising=False
        )
        monkeypatch.delattr(django_webhook_idempotency.signatures, "ed25519", raising=False)
        assert ids(messages(**settings)) == ["E013"]

    @pytest.mark.parametrize(
        "value",
        [
            ["whsec_new", "whsec_old"],
            ("whsec_new",),
            [b"whsec_new"],
            [{"SECRET": "whsec_old", "UNTIL": datetime(2999, 1, 1)}, "whsec_new"],
            [EXPIRED, "whsec_new"],
            f"{HERE}.secrets_of_tenant",
            f"{HERE}.SECRETS",
            secrets_of_tenant,
        ],
    )
    def test_they_are_silent_for_what_can_be_used(self, value: Any) -> None:
        assert of(SECRETS=value) == []

    def test_a_provider_that_does_not_sign_needs_none(self) -> None:
        assert messages(PROVIDERS={"partner": {"RETENTION": 90 * DAY}}) == []


class TestLimits:
    """E018, W019, W020 and W043."""

    @pytest.mark.parametrize(
        ("provider", "options", "needed"),
        [
            ("stripe", {}, 30 * DAY),
            ("sangho", {}, 3 * DAY),
            ("github", {}, 3 * DAY),
            ("github", {"ENTERPRISE_SERVER": True}, 7 * DAY),
            ("slack", {"DELAYED_EVENTS": True}, DAY + timedelta(minutes=6)),
        ],
    )
    def test_e018_a_key_that_is_gone_too_early(
        self, provider: str, options: Any, needed: timedelta
    ) -> None:
        """WB-082."""
        entry = {
            **GOOD,
            **options,
            "MAX_BODY": 1000,
            "BODY_RETENTION": DAY,
            "DELIVERY_RETENTION": DAY,
        }
        exact = {**entry, "RETENTION": needed}
        assert messages(PROVIDERS={provider: exact}) == []
        said = messages(PROVIDERS={provider: {**exact, "RETENTION": needed - timedelta(seconds=1)}})
        assert "E018" in ids(said)
        assert f"['{provider}']['RETENTION'] to {needed}" in str(said[0].hint)

    def test_w019_what_is_kept_longer_than_its_key(self) -> None:
        assert ids(of(RETENTION=30 * DAY)) == []
        assert ids(of(RETENTION=40 * DAY, BODY_RETENTION=41 * DAY)) == ["W019"]
        assert ids(of(RETENTION=40 * DAY, DELIVERY_RETENTION=41 * DAY)) == ["W019"]
        kept = {"STORE_BODY": "unfinished", "STORE_DELIVERIES": False}
        longer = {"BODY_RETENTION": 99 * DAY, "DELIVERY_RETENTION": 99 * DAY}
        assert of(**kept, **longer) == []

    def test_w044_a_quarantine_longer_than_its_keys_allow(self) -> None:
        short = {"RETENTION": 33 * DAY}  # three days beyond Stripe's thirty
        assert of(**short) == of(**short, QUARANTINE_RETENTION=3 * DAY) == []
        said = of(**short, QUARANTINE_RETENTION=4 * DAY)
        assert ids(said) == ["W043"]
        assert "4 days, 0:00:00, but they are kept for 3 days" in said[0].msg
        assert "['RETENTION'] to 34 days" in str(said[0].hint)

    def test_w020_django_refuses_what_a_provider_sends(self) -> None:
        """WB-063."""
        with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=2621440):
            said = messages(PROVIDERS={"github": GOOD, "stripe": GOOD})
            assert ids(said) == ["W020"]
            assert "Set DATA_UPLOAD_MAX_MEMORY_SIZE = 26214400" in str(said[0].hint)
            assert ids(of(MAX_BODY=3_000_000)) == ["W020"]
            assert of(MAX_BODY=2_000_000) == []
        with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=None):
            assert messages(PROVIDERS={"github": GOOD}) == []


class TestStores:
    """E010 to E012, E014 and E015."""

    @pytest.mark.parametrize(
        "store",
        [
            "acme.nowhere.Store",
            "redys",
            *(
                f"{HERE}.{name}"
                for name in ("Lacking", "Shapeless", "Unmakable", "secrets_of_tenant")
            ),
        ],
    )
    def test_e014_a_store_that_is_none(self, store: str) -> None:
        assert ids(messages(STORE=store)) == ["E014"]

    @pytest.mark.parametrize(
        "store", [f"{HERE}.InProcess", "django.core.cache.backends.locmem.LocMemCache"]
    )
    def test_e015_a_store_in_the_memory_of_one_process(self, store: str) -> None:
        """WB-035."""
        assert ids(messages(STORE=store)) == ["E015"]

    @pytest.mark.parametrize(
        "store", ["database", "django_webhook_idempotency.stores.database.DatabaseStore"]
    )
    def test_they_are_silent_for_a_store_that_is_one(self, store: str) -> None:
        assert messages(STORE=store) == []

    def test_e010_redis_without_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from django_webhook_idempotency.stores import redis

        redis._client.cache_clear()
        monkeypatch.setitem(sys.modules, "redis", None)
        said = messages(STORE="redis")
        assert ids(said) == ["E010"]
        assert "django-webhook-idempotency[redis]" in said[0].msg

    def test_w011_redis_that_is_away(self) -> None:
        assert ids(messages(STORE="redis", REDIS_URL="redis://127.0.0.1:1/0")) == ["W011"]

    def test_e012_redis_that_drops_leases(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from django_webhook_idempotency.stores import redis

        policy = "allkeys-lru"
        monkeypatch.setattr(redis, "eviction_policy", lambda url: policy)
        assert ids(messages(STORE="redis")) == ["E012"]
        policy = "noeviction"
        assert messages(STORE="redis") == []


class ToElsewhere:
    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "elsewhere" if model._meta.app_label == "django_webhook_idempotency" else None


class TestEnvironment:
    """E021, W022, W023 and W030."""

    def test_e021_a_database_that_does_not_exist(self) -> None:
        """WB-049."""
        with override_settings(DATABASE_ROUTERS=[ToElsewhere()]):
            assert ids(found()) == ["E021", "W030"]
        assert found() == []

    def test_e021_a_database_that_is_not_supported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connections["default"], "vendor", "oracle")
        assert ids(found()) == ["E021"]

    def test_w022_a_packet_that_is_too_small(self, db: None) -> None:
        class MySQL:
            vendor = "mysql"
            packet = 64 * 1024 * 1024

            def cursor(self) -> Any:
                return self

            __enter__ = cursor

            def __exit__(self, *rest: object) -> None:
                pass

            def execute(self, sql: str) -> None:
                assert sql == "SELECT @@max_allowed_packet"

            def fetchone(self) -> tuple[int]:
                return (self.packet,)

        mysql = MySQL()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "django_webhook_idempotency.checks.environment.connections", {"default": mysql}
            )
            assert list(check_packet(databases=["default"])) == []
            mysql.packet = 16 * 1024 * 1024
            assert [message.id for message in check_packet(databases=["default"])] == [
                "webhooks.W022"
            ]
            assert list(check_packet(databases=None)) == []
            with override_settings(WEBHOOK_IDEMPOTENCY={"PROVIDERS": {"stripe": GOOD}}):
                assert list(check_packet(databases=["default"])) == []

    def test_w022_asks_the_database_of_this_run(self, db: None) -> None:
        expected = []
        if connection.vendor == "mysql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT @@max_allowed_packet")
                if cursor.fetchone()[0] < 2 * 25 * 1024 * 1024:
                    expected = ["W022"]
        said = ids(found(databases=["default"]))
        assert [each for each in said if each == "W022"] == expected

    @override_settings(USE_TZ=False)
    def test_w023_clocks_that_jump(self) -> None:
        with override_settings(TIME_ZONE="Europe/Madrid"):
            assert ids(found()) == ["W023"]
        with override_settings(TIME_ZONE="UTC"):
            assert found() == []
        with override_settings(TIME_ZONE="Asia/Tokyo"):
            assert found() == []

    def test_w030_the_rest_of_the_project_is_elsewhere(self) -> None:
        with override_settings(DATABASE_ROUTERS=[ToElsewhere()]):
            said = [message for message in found() if message.id == "webhooks.W030"]
        assert "admin.LogEntry" in said[0].msg
        assert "and others" in said[0].msg
        assert found() == []


@pytest.fixture
def mount(settings: Any) -> Iterator[Callable[..., list[CheckMessage]]]:
    """Mount views and give what the checks say."""
    module = types.ModuleType("tests.mounted_for_checks")
    sys.modules[module.__name__] = module

    def say(*views: Any, atomic_requests: bool = False) -> list[CheckMessage]:
        inner = [path(f"{number}/", view) for number, view in enumerate(views)]
        module.urlpatterns = [path("hooks/", include(inner))]  # type: ignore[attr-defined]
        was = connection.settings_dict["ATOMIC_REQUESTS"]
        connection.settings_dict["ATOMIC_REQUESTS"] = atomic_requests
        try:
            with override_settings(ROOT_URLCONF=module.__name__):
                return found()
        finally:
            connection.settings_dict["ATOMIC_REQUESTS"] = was

    yield say
    del sys.modules[module.__name__]


def forgetful(view: Any) -> Any:
    """A decorator that carries nothing over."""
    return lambda request, *args, **kwargs: view(request, *args, **kwargs)


def careful(view: Any) -> Any:
    return wraps(view)(forgetful(view))


class Instance:
    def __init__(self, view: Any) -> None:
        self.view = view

    def __call__(self, request: HttpRequest) -> Any:
        return self.view(request)


@idempotent_webhook("stripe")
def decorated(request: HttpRequest) -> Any: ...


@idempotent_webhook("stripe")
async def decorated_async(request: HttpRequest) -> Any: ...


class OnPost(View):
    @idempotent_webhook("stripe")
    def post(self, request: HttpRequest) -> Any: ...


@method_decorator(idempotent_webhook("stripe"), name="post")
class OnPostByName(View):
    def post(self, request: HttpRequest) -> Any: ...


@method_decorator(idempotent_webhook("stripe"), name="dispatch")
class OnDispatch(View):
    def post(self, request: HttpRequest) -> Any: ...


class OnApiPost(APIView):
    @idempotent_webhook("stripe")
    def post(self, request: Any) -> Any: ...


@api_view(["POST"])
@idempotent_webhook("stripe")
def below_api_view(request: Any) -> Any: ...


@idempotent_webhook("stripe")
@api_view(["POST"])
def above_api_view(request: Any) -> Any: ...


class ApiHook(WebhookAPIView):
    provider = "stripe"


RIGHT = [
    decorated,
    decorated_async,
    careful(decorated),
    transaction.non_atomic_requests(csrf_exempt(forgetful(decorated))),
    above_api_view,
    StripeWebhookView.as_view(),
    ApiHook.as_view(),
    OnDispatch.as_view(),
    forgetful(lambda request: HttpResponse()),
    open_to_providers(lambda request: HttpResponse()),
]
WRAPPED = {
    "forgetful": forgetful(decorated),
    "twice": forgetful(careful(forgetful(decorated))),
    "async": forgetful(decorated_async),
    "class": forgetful(StripeWebhookView.as_view()),
    "method": forgetful(OnPost.as_view()),
    "instance": Instance(decorated),
    "bound": Instance(decorated).__call__,
    "partial": partial(forgetful(decorated)),
    "argument": partial(lambda view, request: view(request), decorated),
}


class TestViews:
    """E024 to E027; WB-051 and WB-072."""

    @pytest.mark.parametrize("atomic_requests", [True, False])
    def test_they_are_silent_for_every_way_in(self, mount: Any, atomic_requests: bool) -> None:
        assert mount(*RIGHT, atomic_requests=atomic_requests) == []

    @pytest.mark.parametrize("view", WRAPPED.values(), ids=WRAPPED.keys())
    def test_e024_csrf_protection_is_back(self, mount: Any, view: Any) -> None:
        said = mount(view)
        assert ids(said) == ["E024"]
        assert "hooks/0/" in said[0].msg

    @pytest.mark.parametrize(
        "middleware", [[], ["django.middleware.common.CommonMiddleware", "acme.nowhere.Middleware"]]
    )
    def test_e024_is_silent_where_nobody_asks_for_tokens(
        self, mount: Any, middleware: list[str]
    ) -> None:
        with override_settings(MIDDLEWARE=middleware):
            assert mount(*WRAPPED.values(), OnPost.as_view()) == []

    @pytest.mark.parametrize("view", WRAPPED.values(), ids=WRAPPED.keys())
    def test_e025_a_transaction_is_around_it(self, mount: Any, view: Any) -> None:
        assert ids(mount(view, atomic_requests=True)) == ["E024", "E025"]
        assert ids(mount(csrf_exempt(forgetful(view)), atomic_requests=True)) == ["E025"]
        assert mount(csrf_exempt(forgetful(view))) == []

    @pytest.mark.parametrize("view_class", [OnPost, OnPostByName])
    def test_e026_a_decorated_method(self, mount: Any, view_class: Any) -> None:
        said = mount(view_class.as_view())
        assert ids(said) == ["E026"]
        assert "post()" in said[0].msg
        assert "name='dispatch'" in str(said[0].hint)

    def test_e026_a_decorated_method_of_an_api_view(self, mount: Any) -> None:
        assert mount(OnApiPost.as_view()) == []
        assert ids(mount(OnApiPost.as_view(), atomic_requests=True)) == ["E026"]

    def test_e027_api_view_outside(self, mount: Any) -> None:
        assert mount(below_api_view) == []
        said = mount(below_api_view, atomic_requests=True)
        assert ids(said) == ["E027"]

    def test_a_urlconf_that_cannot_be_read_is_djangos_to_report(self) -> None:
        with override_settings(ROOT_URLCONF="tests.no_urls_here"):
            assert found() == []
        with override_settings():
            from django.conf import settings

            del settings.ROOT_URLCONF
            assert found() == []

    def test_what_a_view_brings_along_is_checked_too(self, mount: Any) -> None:
        with override_settings(WEBHOOK_IDEMPOTENCY={}):
            said = mount(decorated, StripeWebhookView.as_view())
            assert ids(said) == ["E005", "E005"]
            assert "tests.test_checks.decorated" in said[0].msg
            assert ids(mount(StripeWebhookView.as_view(secrets=["sk_test"], wait=-1))) == [
                "E004",
                "E007",
            ]
            assert mount(StripeWebhookView.as_view(**{"secrets": GOOD["SECRETS"]})) == []
            assert mount(idempotent_webhook(key="X-Id", provider="acme")(forgetful(None))) == []
            retention = {"RETENTION": DAY, "BODY_RETENTION": DAY, "DELIVERY_RETENTION": DAY}
        with override_settings(WEBHOOK_IDEMPOTENCY=retention):
            assert ids(mount(idempotent_webhook("stripe", secrets=["whsec_x"])(decorated))) == [
                "E018"
            ]


class TestViewsOfNobody:
    def test_e002_a_view_whose_provider_is_not_known(self, mount: Any) -> None:
        said = mount(idempotent_webhook("githb")(decorated))
        assert ids(said) == ["E002"]
        assert "decorated" in said[0].msg
        assert "'github'" in said[0].hint
        assert mount(idempotent_webhook(key="X-Id", provider="partner")(decorated)) == []


class TestHandlers:
    """W028."""

    def test_w028_a_handler_whose_provider_receives_nothing(
        self, handlers: Any, mount: Any
    ) -> None:
        handlers.add(print, "strpe")
        handlers.add(repr, "stripe")
        handlers.add(len, "*")
        said = messages(PROVIDERS={"stripe": GOOD})
        assert ids(said) == ["W028"]
        assert "'strpe'" in said[0].msg
        for function in (len, id, abs, hash):
            handlers.add(function, "strpe")
        (once,) = messages(PROVIDERS={"stripe": GOOD})
        assert once.msg.count(",") == 3
        assert "and others" in once.msg
        with override_settings(WEBHOOK_IDEMPOTENCY={"PROVIDERS": {"strpe": {"RETENTION": DAY}}}):
            assert "W028" in ids(found())

    def test_w028_is_silent_for_what_only_a_view_receives(self, handlers: Any, mount: Any) -> None:
        handlers.add(print, "stripe")
        with override_settings(WEBHOOK_IDEMPOTENCY={}):
            assert mount(StripeWebhookView.as_view(secrets=GOOD["SECRETS"])) == []
            decorated_only = idempotent_webhook("stripe", secrets=GOOD["SECRETS"])(decorated)
            assert ids(mount(decorated_only)) == ["W028"]
            assert ids(mount(WebhookView.as_view())) == ["W028"]


class TestRecovery:
    """What else can be wrong with a RECOVERY is in tests/recovery/test_settings.py."""

    SOURCE = "tests.recovery.sources.Ledger"

    def test_e042_names_the_setting_and_shows_no_secret(self) -> None:
        (said,) = of(RECOVERY={"SOURCE": self.SOURCE, "ATTEMPTS": 0, "TOKEN": "ghp_secret"})
        assert said.id == "webhooks.E042"
        assert "['RECOVERY']['ATTEMPTS'] should be a whole number, one or more" in said.msg
        assert "ghp_secret" not in f"{said}"

    def test_e042_is_silent_without_one_and_for_one_that_fits(self) -> None:
        assert ids(of(RECOVERY=None)) == []
        assert ids(of(RECOVERY={"SOURCE": self.SOURCE})) == []

    def test_e042_leaves_what_is_no_dictionary_to_e004(self) -> None:
        assert ids(of(RECOVERY="token")) == ["E004"]


RESERVED = {identifier for identifier, text in checks.IDS.items() if text.startswith("Reserved")}


class TestIds:
    def test_none_is_used_that_is_not_listed(self) -> None:
        used: set[str] = set()
        for module in Path(django_webhook_idempotency.__file__).parent.rglob("*.py"):
            if module.name != "ids.py":
                used |= set(re.findall(r"webhooks\.[A-Z]\d{3}", module.read_text()))
        assert used == set(checks.IDS) - RESERVED

    def test_no_number_is_used_twice(self) -> None:
        numbers = [identifier[-3:] for identifier in checks.IDS]
        assert sorted(set(numbers)) == numbers == [f"{n:03}" for n in range(1, len(numbers) + 1)]

    def test_each_has_a_test_that_names_it(self) -> None:
        text = "".join(each.read_text() for each in Path(__file__).parent.glob("test_check*.py"))
        for identifier in set(checks.IDS) - RESERVED:
            short = identifier.removeprefix("webhooks.")
            assert f'"{short}"' in text or f'"{identifier}"' in text

    def test_the_test_project_has_no_fault(self, db: None) -> None:
        call_command("check", "--tag", checks.TAG)
        assert found() == []

    def test_no_check_queries_the_database_unasked(self, django_assert_num_queries: Any) -> None:
        """Without the `db` mark, a query raises."""
        assert run_checks(tags=[checks.TAG], databases=[]) == []
