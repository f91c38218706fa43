"""RECOVERY as it is written in the settings: what is wrong with it, and what is never shown."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_webhook_idempotency.checks.recovery import check_recovery
from django_webhook_idempotency.exceptions import MissingExtra
from django_webhook_idempotency.recovery import credential, recoveries

pytestmark = pytest.mark.once

WHERE = "WEBHOOK_IDEMPOTENCY['PROVIDERS']['github']['RECOVERY']"
HOOKS = [{"repo": "o/r", "hook_id": 1}]


def configure(settings: Any, recovery: Any, slug: str = "github", **options: Any) -> None:
    own = {"SECRETS": ["public"], "RECOVERY": recovery, **options}
    settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": {slug: own}}


class TestTerms:
    @pytest.mark.parametrize(
        ("recovery", "problem"),
        [
            ({"SOURCE": "acme.nowhere.Source"}, "['SOURCE'] 'acme.nowhere.Source' cannot be"),
            ({"SOURCE": "tests.recovery.sources.NoSource"}, "is no subclass of Source"),
            ({"ATTEMPTS": 0}, "['ATTEMPTS'] should be a whole number, one or more"),
            ({"ALARM": 12}, "['ALARM'] should be a positive datetime.timedelta"),
            ({"VIEW": "shop.nowhere.View"}, "['VIEW']: 'shop.nowhere.View' is no view class"),
            ({"VIEW": 3}, "['VIEW'] should be the dotted path of a view class"),
            ({"ACCOUNTS": []}, "names nothing to ask for events"),
            ({"ACCOUNTS": ["one", "one"]}, "names the source 'github one' twice"),
            ({"ACCOUNTS": ["x" * 256]}, "longer than 255 characters"),
        ],
    )
    def test_a_mistake_is_named(self, settings, recovery, problem):
        configure(settings, {"SOURCE": "tests.recovery.sources.Ledger", **recovery})
        with pytest.raises(ImproperlyConfigured) as error:
            recoveries()
        assert WHERE in str(error.value)
        assert problem in str(error.value)
        (message,) = check_recovery()
        assert (message.id, message.msg) == ("webhooks.E042", str(error.value))

    def test_reach_the_run(self, settings):
        terms = {"ATTEMPTS": 2, "ALARM": timedelta(hours=1), "ACCOUNTS": ["a", "b"]}
        configure(settings, {"SOURCE": "tests.recovery.sources.Ledger", **terms})
        (recovery,) = recoveries()
        assert (recovery.terms.attempts, recovery.terms.alarm) == (2, timedelta(hours=1))
        assert [source.key for source in recovery.sources] == ["a", "b"]
        assert check_recovery() == []

    def test_a_provider_that_nothing_is_built_in_for(self, settings):
        configure(settings, {}, "slack")
        with pytest.raises(ImproperlyConfigured, match="Name a Source of your own"):
            recoveries()

    def test_no_dictionary(self, settings):
        configure(settings, ["TOKEN"])
        with pytest.raises(ImproperlyConfigured, match="should be None or a dictionary"):
            recoveries()

    def test_a_provider_without_it_is_passed_over_unless_named(self, settings):
        configure(settings, None)
        assert recoveries() == []
        assert check_recovery() == []
        with pytest.raises(ImproperlyConfigured, match="'github' has no RECOVERY"):
            recoveries(["github"])

    def test_cannot_be_set_on_a_view(self):
        from django_webhook_idempotency.views import GitHubWebhookView

        with pytest.raises(TypeError, match="recovery cannot be set on a view"):
            GitHubWebhookView.as_view(recovery={})


class TestGitHub:
    @pytest.fixture(autouse=True)
    def client(self):
        pytest.importorskip("github")

    @pytest.mark.parametrize(
        ("recovery", "problem"),
        [
            ({"HOOKS": None}, "['HOOKS'] should be a list of"),
            ({"HOOKS": []}, "['HOOKS'] should be a list of"),
            ({"HOOKS": ["o/r"]}, "['HOOKS'][0] should be one of"),
            ({"HOOKS": [{"repo": "o/r", "id": 1}]}, "['HOOKS'][0] should be one of"),
            ({"HOOKS": [{"hook_id": 1}]}, "['HOOKS'][0] should be one of"),
            ({"HOOKS": [{"repo": "o/r", "org": "o", "hook_id": 1}]}, "should be one of"),
            ({"HOOKS": [{"repo": "o/r"}]}, "['hook_id'] should be the hook's number"),
            ({"HOOKS": [{"repo": "r", "hook_id": 1}]}, "['repo'] should be 'owner/name'"),
            ({"HOOKS": [{"org": "o/../x", "hook_id": 1}]}, "['org'] should be an organisation"),
            ({"HOOKS": [{**HOOKS[0], "scope": 1}]}, "['scope'] should be the scope"),
            ({"HOOKS": [{"app": True}]}, "names an app's hook"),
            ({"TOKEN": None}, "should have either a TOKEN, or an APP_ID and a PRIVATE_KEY"),
            ({"APP_ID": 1}, "should have either"),
            ({"TOKEN": None, "APP_ID": 1}, "should have either"),
            ({"TOKEN": " "}, "['TOKEN'] is empty or no text"),
            ({"TOKEN": "acme.vault.token"}, "['TOKEN'] cannot be imported"),
            ({"BASE_URL": "github.example.com"}, "['BASE_URL'] should be the URL of the API"),
            ({"BASE_URL": "https://me:pw@github.example.com"}, "['BASE_URL'] should be the URL"),
            ({"BASE_URL": "http://github.example.com"}, "http:// only on this machine"),
            ({"PAUSE": -1}, "['PAUSE'] should be a finite number of seconds"),
            ({"TOKENS": ["x"]}, "['TOKENS'] is not known. Known are ALARM, APP_ID"),
        ],
    )
    def test_a_mistake_is_named(self, settings, recovery, problem):
        configure(settings, {"HOOKS": HOOKS, "TOKEN": "ghp_secret", **recovery})
        (message,) = check_recovery()
        assert message.id == "webhooks.E042"
        assert WHERE in message.msg
        assert problem in message.msg
        assert "ghp_secret" not in message.msg
        assert "pw" not in message.msg

    def test_a_scope_that_the_provider_does_not_have(self, settings):
        hooks = [{**HOOKS[0], "scope": "eu"}]
        configure(settings, {"HOOKS": hooks, "TOKEN": "x"}, SCOPES=["us"])
        with pytest.raises(ImproperlyConfigured, match="is not among the provider's SCOPES"):
            recoveries()
        configure(settings, {"HOOKS": hooks, "TOKEN": "x"}, SCOPES=["eu"])
        assert recoveries()

    def test_an_enterprise_server_has_an_address(self, settings):
        configure(settings, {"HOOKS": HOOKS, "TOKEN": "x"}, ENTERPRISE_SERVER=True)
        with pytest.raises(ImproperlyConfigured, match="BASE_URL"):
            recoveries()

    def test_sources_are_named_after_their_hooks(self, settings):
        hooks = [*HOOKS, {"org": "o", "hook_id": 2, "scope": "acme"}, {"app": True}]
        configure(settings, {"HOOKS": hooks, "APP_ID": 1, "PRIVATE_KEY": "key"})
        (recovery,) = recoveries()
        keys = [source.key for source in recovery.sources]
        assert keys == ["repos/o/r/hooks/1", "orgs/o/hooks/2 acme", "app"]
        assert "'key'" not in repr(recovery)


class TestCredentials:
    @pytest.mark.parametrize(
        "value", ["ghp_1", lambda: "ghp_1", "tests.recovery.sources.token"], ids=str
    )
    def test_texts_callables_and_paths(self, value):
        found = credential({"TOKEN": value}, "TOKEN", "RECOVERY")
        assert found is not None
        assert found() in ("ghp_1", "sk_public_and_only_for_the_tests")
        assert repr(found) == "<Credential RECOVERY['TOKEN']>"

    def test_none(self):
        assert credential({}, "TOKEN", "RECOVERY") is None

    def test_what_a_function_raises_is_not_told(self):
        found = credential({"T": "tests.recovery.sources.broken_token"}, "T", "RECOVERY")
        assert found is not None
        with pytest.raises(ImproperlyConfigured) as error:
            found()
        assert str(error.value) == "The function in RECOVERY['T'] raised ValueError."
        assert error.value.__cause__ is None
        assert error.value.__suppress_context__

    @pytest.mark.parametrize("value", ["", b"x", lambda: "", lambda: None])
    def test_what_is_empty_or_no_text(self, value):
        with pytest.raises(ImproperlyConfigured, match="is empty or no text"):
            found = credential({"T": value}, "T", "RECOVERY")
            assert found is not None
            found()


def test_a_missing_extra_is_one_sentence(settings, monkeypatch):
    import sys

    for name in [name for name in sys.modules if name.startswith("django_webhook_idempotency.rec")]:
        if ".github" in name:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "github", None)
    configure(settings, {"HOOKS": HOOKS, "TOKEN": "x"})
    with pytest.raises(MissingExtra, match=r"django-webhook-idempotency\[github\]"):
        recoveries()
    (message,) = check_recovery()
    assert message.id == "webhooks.E042"
