"""Providers by slug."""

from __future__ import annotations

import subprocess
import sys

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_webhook_idempotency.exceptions import MalformedWebhook
from django_webhook_idempotency.providers import (
    BUILT_IN,
    Provider,
    UnknownProvider,
    configured_provider,
    provider_class,
)
from django_webhook_idempotency.providers.keyed import Keyed
from django_webhook_idempotency.providers.stripe import Stripe

from .cases import FORM, incoming

SETTING = "WEBHOOK_IDEMPOTENCY"


class Acme(Provider):
    slug = "acme"


NO_CLASS = 5


def configure(settings, **providers):
    settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": providers}


class TestClass:
    @pytest.mark.parametrize("slug", sorted(BUILT_IN))
    def test_each_built_in_is_found(self, slug):
        assert provider_class(slug).slug == slug

    def test_an_unknown_one_names_the_known(self):
        with pytest.raises(UnknownProvider, match=r"'strype' is not known.*stripe"):
            provider_class("strype")

    def test_a_default_stands_behind_what_is_unknown(self):
        assert provider_class("partner", Keyed) is Keyed
        assert provider_class("stripe", Keyed) is Stripe

    @pytest.mark.parametrize("found", [f"{__name__}.Acme", Acme])
    def test_the_settings_may_name_a_class(self, settings, found):
        configure(settings, acme={"CLASS": found}, stripe={"CLASS": found})

        assert provider_class("acme") is Acme
        assert provider_class("stripe") is Acme

    @pytest.mark.parametrize("path", [f"{__name__}.Nothing", "no.such.module", "acme"])
    def test_a_class_that_cannot_be_imported(self, settings, path):
        configure(settings, acme={"CLASS": path})

        with pytest.raises(UnknownProvider, match="cannot be imported"):
            provider_class("acme")

    @pytest.mark.parametrize("found", [f"{__name__}.NO_CLASS", f"{__name__}.configure", int, 5])
    def test_a_class_of_another_kind(self, settings, found):
        configure(settings, acme={"CLASS": found})

        with pytest.raises(UnknownProvider, match="not a subclass of Provider"):
            provider_class("acme")

    def test_a_provider_is_imported_on_first_use(self):
        code = (
            "import sys, django_webhook_idempotency.providers as p;"
            "print([s for s in p.BUILT_IN if f'{p.__name__}.{s}' in sys.modules])"
        )
        found = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )

        assert found.stdout.strip() == "[]"


class TestConfigured:
    def test_options_come_from_the_settings_then_from_the_overrides(self, settings):
        settings.WEBHOOK_IDEMPOTENCY = {
            "DEADLINE": 9,
            "WAIT": 1,
            "PROVIDERS": {"stripe": {"WAIT": 0, "LEASE": Stripe.lease * 2, "CLASS": None}},
        }
        provider = configured_provider("stripe", {"LEASE": Stripe.lease * 3})

        assert isinstance(provider, Stripe)
        assert (provider.deadline, provider.wait) == (9, 0)
        assert provider.lease == Stripe.lease * 3

    def test_settings_are_read_live(self, settings):
        configure(settings, stripe={"SECRETS": ["a"]})
        assert configured_provider("stripe").live_secrets()[0].value == b"a"
        configure(settings, stripe={"SECRETS": ["b"]})
        assert configured_provider("stripe").live_secrets()[0].value == b"b"

    def test_a_second_endpoint_of_a_provider(self, settings):
        configure(settings, github_apps={"CLASS": BUILT_IN["github"], "SECRETS": ["a"]})
        provider = configured_provider("github_apps")

        assert (provider.key, provider.slug) == ("github_apps", "github")

    def test_an_option_of_another_provider_is_refused(self, settings):
        configure(settings, stripe={"ACCEPT_SHA1": True})

        with pytest.raises(ImproperlyConfigured, match="ACCEPT_SHA1"):
            configured_provider("stripe")


class TestKeyed:
    def test_only_the_decorator_knows_the_key(self):
        with pytest.raises(MalformedWebhook):
            Keyed().identify(incoming("{}"))

    def test_any_media_type_and_no_signature(self):
        assert Keyed().accepts("image/png")
        assert not Keyed.is_signed

    @pytest.mark.parametrize(
        ("body", "content_type", "payload"),
        [
            (b"[1]", "application/json", [1]),
            (b"a=1", FORM, {"a": "1"}),
            (b"\xff", "image/png", b"\xff"),
        ],
    )
    def test_payload(self, body, content_type, payload):
        assert Keyed().payload(incoming(body, {}, content_type)) == payload
