"""The included URLs, a class-based view and decorated views, all with the same effects."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from django_webhook_idempotency.decorators import idempotent_webhook
from django_webhook_idempotency.models import WebhookEvent
from django_webhook_idempotency.views import WebhookView

from .webhooks import play


class PlayView(WebhookView):
    def handle(self, event: WebhookEvent) -> None:
        play(event)


class LeasedPlayView(PlayView):
    atomic = False


def play_request(request: Any) -> HttpResponse:
    play(request.webhook_event)
    return HttpResponse("played")


@idempotent_webhook("stripe")
def decorated(request: HttpRequest) -> HttpResponse:
    return play_request(request)


@idempotent_webhook("stripe", replay_response=True)
async def decorated_async(request: HttpRequest) -> HttpResponse:
    from asgiref.sync import sync_to_async

    return await sync_to_async(play_request)(request)


@idempotent_webhook("stripe", atomic=False)
def decorated_leased(request: HttpRequest) -> HttpResponse:
    return play_request(request)


urlpatterns = [
    path("webhooks/", include("django_webhook_idempotency.urls")),
    path("class/<str:provider>/", PlayView.as_view()),
    path("class-leased/<str:provider>/", LeasedPlayView.as_view()),
    path("decorated/stripe/", decorated),
    path("decorated-async/stripe/", decorated_async),
    path("decorated-leased/stripe/", decorated_leased),
]
