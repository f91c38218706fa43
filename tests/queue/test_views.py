"""View classes with a `handle` of their own, whose events a worker handles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpResponse
from django.test import Client
from django.urls import path

from django_webhook_idempotency.decorators import idempotent_webhook
from django_webhook_idempotency.dispatch.resolving import view_at
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.models import HandlerRun, WebhookEvent
from django_webhook_idempotency.providers.stripe import Stripe
from django_webhook_idempotency.rest_framework.views import WebhookAPIView
from django_webhook_idempotency.views import StripeWebhookView
from tests.app.models import Effect
from tests.deliveries import deliver

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


class Orders(StripeWebhookView):
    max_attempts = 2

    def handle(self, event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id, name="orders")
        if event.event_type == "bad":
            raise ValueError


class Mails(StripeWebhookView):
    atomic = False

    async def handle(self, event: WebhookEvent) -> None:
        await Effect.objects.acreate(event_id=event.event_id, name="mails")


class Outer:
    class Hooks(WebhookAPIView):
        provider = "stripe"

        def handle(self, event: WebhookEvent) -> None:
            Effect.objects.create(event_id=event.event_id, name="api")


def hidden() -> Any:
    class Hidden(StripeWebhookView):
        def handle(self, event: WebhookEvent) -> None:
            Effect.objects.create(event_id=event.event_id, name="hidden")

    return Hidden


class Doorkeeper(StripeWebhookView):
    """Lets in whom it knows; its events were let in when they came."""

    max_attempts = 2

    def handle(self, event: WebhookEvent) -> None:
        raise PermissionDenied


@idempotent_webhook("stripe")
def decorated(request: Any) -> HttpResponse:
    Effect.objects.create(event_id=request.webhook_event.event_id, name="decorated")
    return HttpResponse("taken")


@idempotent_webhook("stripe")
def failing(request: Any) -> HttpResponse:
    raise ValueError


urlpatterns = [
    path("orders/", Orders.as_view()),
    path("mails/", Mails.as_view()),
    path("api/", Outer.Hooks.as_view()),
    path("doorkeeper/", Doorkeeper.as_view()),
    path("hidden/", hidden().as_view()),
    path("inline/", Orders.as_view(processing="inline")),
    path("decorated/", decorated),
    path("failing/", failing),
]


@pytest.mark.parametrize("name", ["orders", "mails", "api"])
def test_a_worker_calls_handle(client: Client, drain: Callable[[], int], name: str) -> None:
    assert deliver(client, "stripe", path=f"/{name}/").status_code == 202
    assert Effect.objects.count() == 0
    assert drain() == 1
    assert Effect.objects.get().name == name
    event = WebhookEvent.objects.get()
    assert event.status == EventStatus.PROCESSED
    run = HandlerRun.objects.first()
    assert (event.handled_by or run.handler) == event.view


def test_options_of_the_class_count_in_the_worker(
    client: Client, drain: Callable[[], int], later: Callable[..., None]
) -> None:
    deliver(client, "stripe", "evt_1", "bad", path="/orders/")
    for _ in range(3):
        drain()
        later()
    event = WebhookEvent.objects.get()
    assert (event.status, event.attempts) == (EventStatus.DEAD, 2)
    assert Effect.objects.count() == 0


def test_what_was_let_in_is_not_turned_away_by_a_worker(
    client: Client, monkeypatch: Any, drain: Callable[[], int], later: Callable[..., None]
) -> None:
    """In a request it would leave no event behind; here it is a failure, and not for ever."""
    monkeypatch.setattr(Stripe, "is_signed", False)
    assert deliver(client, "stripe", path="/doorkeeper/").status_code == 202
    for _ in range(3):
        drain()
        later()
    event = WebhookEvent.objects.get()
    assert (event.status, event.attempts) == (EventStatus.DEAD, 2)
    assert "PermissionDenied" in event.last_error


@pytest.mark.parametrize("name", ["hidden", "inline"])
def test_runs_in_the_request_where_no_worker_can(client: Client, name: str) -> None:
    assert deliver(client, "stripe", path=f"/{name}/").json()["status"] == "processed"
    assert Effect.objects.count() == 1


def test_a_decorated_view_answers_by_itself(client: Client, drain: Callable[[], int]) -> None:
    assert deliver(client, "stripe", path="/decorated/").content == b"taken"
    assert deliver(client, "stripe", "evt_2", path="/failing/").status_code == 500
    assert WebhookEvent.objects.get(event_id="evt_2").lane is None
    assert drain() == 0


def test_a_decorated_view_cannot_be_queued() -> None:
    with pytest.raises(TypeError, match="answers by itself"):
        idempotent_webhook("stripe", processing="queued")


@pytest.mark.parametrize("gone", ["tests.queue.test_views.Gone", "nowhere.View", "os.path", "x"])
def test_a_class_that_is_gone_costs_no_attempt(
    client: Client, drain: Callable[[], int], gone: str
) -> None:
    deliver(client, "stripe", path="/orders/")
    WebhookEvent.objects.update(view=gone)
    assert drain() == 1
    event = WebhookEvent.objects.get()
    assert (event.status, event.attempts) == (EventStatus.PENDING, 0)
    assert gone in event.last_error
    with pytest.raises(ImproperlyConfigured, match="no view class"):
        view_at(gone)
