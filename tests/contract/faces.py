"""Every way into the receiver, each with a handler that does what the test says.

The suite in `test_faces.py` runs over all of them; `urls` mounts each at its own path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpResponse, JsonResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.decorators import api_view
from rest_framework.response import Response

from django_webhook_idempotency.decorators import idempotent_webhook
from django_webhook_idempotency.models import WebhookEvent
from django_webhook_idempotency.rest_framework.views import WebhookAPIView
from django_webhook_idempotency.views import AsyncWebhookView, SanghoWebhookView, WebhookView
from tests.app.models import Effect


@dataclass
class Script:
    """What the handlers of a test do, and what they saw."""

    act: Callable[[WebhookEvent], Any] = lambda event: None
    seen: list[WebhookEvent] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def reset(self) -> None:
        self.act = lambda event: None
        self.seen.clear()
        self.bodies.clear()

    def __call__(self, event: WebhookEvent) -> Any:
        self.seen.append(event)
        self.bodies.append(bytes(event.body or b""))
        Effect.objects.create(event_id=event.event_id)
        return self.act(event)

    async def asynchronous(self, event: WebhookEvent) -> Any:
        self.seen.append(event)
        self.bodies.append(bytes(event.body or b""))
        await Effect.objects.acreate(event_id=event.event_id)
        return self.act(event)


script = Script()


def answer_of(event: WebhookEvent, value: Any) -> HttpResponse:
    """A view's own answer: what the script returned, or a small document."""
    if isinstance(value, HttpResponse):
        return value
    return JsonResponse({"handled": event.event_id}, status=201)


def urls_for(atomic: bool) -> list[Any]:
    """One path for each face; `atomic` is the handler's."""
    kept = {"atomic": atomic}

    class OwnHandle(SanghoWebhookView):
        def handle(self, event: WebhookEvent) -> Any:
            return script(event)

    class OwnAsyncHandle(WebhookView):
        provider = "sangho"

        async def handle(self, event: WebhookEvent) -> Any:
            return await script.asynchronous(event)

    class Drf(WebhookAPIView):
        provider = "sangho"

        def handle(self, event: WebhookEvent) -> Any:
            return script(event)

    for view_class in (OwnHandle, OwnAsyncHandle, Drf):
        view_class.atomic = atomic

    @idempotent_webhook("sangho", **kept)
    def plain(request):
        return answer_of(request.webhook_event, script(request.webhook_event))

    @idempotent_webhook("sangho", **kept)
    async def asynchronous(request):
        event = request.webhook_event
        return answer_of(event, await script.asynchronous(event))

    @idempotent_webhook("sangho", **kept)
    @api_view(["POST"])
    def above_api_view(request):
        event = request.webhook_event
        assert request.data == event.data
        value = script(event)
        return value if isinstance(value, HttpResponse) else Response({"handled": event.event_id})

    @api_view(["POST"])
    @idempotent_webhook("sangho", **kept)
    def below_api_view(request):
        event = request.webhook_event
        value = script(event)
        return value if isinstance(value, HttpResponse) else Response({"handled": event.event_id})

    @method_decorator(idempotent_webhook("sangho", **kept), name="dispatch")
    class Method(View):
        def post(self, request):
            return answer_of(request.webhook_event, script(request.webhook_event))

    @idempotent_webhook(key="Sangho-Event-ID", provider="partner", **kept)
    def keyed(request):
        return answer_of(request.webhook_event, script(request.webhook_event))

    return [
        path("own-handle/", OwnHandle.as_view()),
        path("own-async-handle/", OwnAsyncHandle.as_view()),
        path("drf/", Drf.as_view()),
        path("plain/", plain),
        path("asynchronous/", asynchronous),
        path("above-api-view/", above_api_view),
        path("below-api-view/", below_api_view),
        path("method/", Method.as_view()),
        path("keyed/", keyed),
    ]


urlpatterns = [
    path("webhooks/", include("django_webhook_idempotency.urls")),
    path("registered/", SanghoWebhookView.as_view()),
    path("registered-async/", AsyncWebhookView.as_view(provider="sangho")),
    path("atomic/", include((urls_for(True), "atomic"))),
    path("leased/", include((urls_for(False), "leased"))),
]

OWN = [
    "own-handle",
    "own-async-handle",
    "drf",
    "plain",
    "asynchronous",
    "above-api-view",
    "below-api-view",
    "method",
    "keyed",
]
REGISTERED = ["/webhooks/sangho/", "/webhooks/sangho", "/registered/", "/registered-async/"]
#: Faces that pass the view's own answer on.
ANSWERING = ["plain", "asynchronous", "above-api-view", "below-api-view", "method", "keyed"]
