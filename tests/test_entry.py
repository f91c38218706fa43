"""What can be set on a view, and what cannot."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_webhook_idempotency.decorators import idempotent_webhook
from django_webhook_idempotency.rest_framework.views import WebhookAPIView
from django_webhook_idempotency.views import GitHubWebhookView, StripeWebhookView, WebhookView


@pytest.mark.parametrize("name", ["retention", "body_retention", "delivery_retention"])
def test_a_retention_is_refused_where_the_purge_would_not_see_it(name: str) -> None:
    days = timedelta(days=100)
    django_class: Any = type("Mine", (StripeWebhookView,), {name: days})
    drf_class: Any = type("Drf", (WebhookAPIView,), {"provider": "stripe", name: days})
    for make in (
        lambda: StripeWebhookView.as_view(**{name: days}),
        lambda: idempotent_webhook("stripe", **{name: days}),
        django_class.as_view,
        drf_class.as_view,
    ):
        with pytest.raises(TypeError, match=name):
            make()


def test_options_of_the_provider_that_as_view_names() -> None:
    view: Any = WebhookView.as_view(provider="github", accept_sha1=True)
    assert view.view_initkwargs["overrides"] == {"ACCEPT_SHA1": True}


def test_the_order_of_override() -> None:
    """DESIGN §6: the argument of `as_view()`, then the class attribute."""
    sub_class: Any = type("Mine", (GitHubWebhookView,), {"wait": 1, "deadline": 7})
    view = sub_class.as_view(wait=3)
    assert view.view_initkwargs["overrides"] == {"WAIT": 3, "DEADLINE": 7}


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError):
        StripeWebhookView.as_view(accept_sha1=True)


@pytest.mark.parametrize("arguments", [(), (lambda request: None,)])
def test_a_decorator_that_names_nothing_is_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(TypeError, match="Say which webhooks to expect"):
        idempotent_webhook(*arguments)


def test_only_views_are_decorated() -> None:
    view = idempotent_webhook("stripe")(lambda number: None)
    with pytest.raises(TypeError, match="first argument is the request"):
        view(7)


def test_a_post_of_ones_own_would_never_be_called() -> None:
    sub_class: Any = type("Mine", (GitHubWebhookView,), {"post": lambda self, request: None})
    with pytest.raises(TypeError, match="would never be called"):
        sub_class.as_view()


def test_a_secret_on_a_view_is_in_no_repr() -> None:
    from django_webhook_idempotency.receiver import Receiver

    receiver = Receiver(resolve=lambda: None, handlers=lambda event: [])  # type: ignore[return-value]
    assert "resolve" not in repr(receiver)


def test_two_functions_of_one_name_are_refused() -> None:
    from django_webhook_idempotency.handlers import registry, webhook_handler

    def make() -> Any:
        def handler(event: Any) -> None: ...

        return handler

    first, second = make(), make()
    webhook_handler("stripe", "x")(first)
    try:
        webhook_handler("stripe", "x")(first)
        with pytest.raises(ValueError, match="the second would replace the first"):
            webhook_handler("stripe", "x")(second)
        webhook_handler("stripe", "x", name="second")(second)
        assert len(registry.find("stripe", "x")) == 2
    finally:
        registry.remove(first)
        registry.remove(second)


def test_a_bare_handler_decorator_is_refused() -> None:
    from django_webhook_idempotency.handlers import webhook_handler

    with pytest.raises(TypeError, match="Say whose events"):
        webhook_handler(lambda event: None)
