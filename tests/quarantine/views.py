"""View classes whose options and handlers a kept delivery is verified and run with."""

from __future__ import annotations

from django.urls import include, path

from django_webhook_idempotency.models import WebhookEvent
from django_webhook_idempotency.views import StripeWebhookView
from tests.app.models import Effect


class Orders(StripeWebhookView):
    secrets = ["the-wrong-one"]

    def handle(self, event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id, name="orders")


class Registered(StripeWebhookView):
    """Has options, and leaves the events to the registered handlers."""

    secrets = ["the-wrong-one"]


urlpatterns = [
    path("orders/", Orders.as_view()),
    path("registered/", Registered.as_view()),
    path("webhooks/", include("django_webhook_idempotency.urls")),
]
