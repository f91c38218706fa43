"""The HTTP answers: small JSON that gives nothing away."""

from __future__ import annotations

import logging

from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    JsonResponse,
)

from .dispatch.responses import replayed
from .dispatch.work import Result
from .enums import Outcome
from .exceptions import Reject, Retry
from .models import WebhookEvent
from .providers import Answer, Provider
from .providers.base import SERVICE_UNAVAILABLE
from .providers.incoming import media_type

UNSUPPORTED_MEDIA_TYPE = 415

logger = logging.getLogger("django_webhook_idempotency")


def plain(status: int, word: str, event: WebhookEvent | None = None) -> HttpResponse:
    """`{"status": word, "event": id}`."""
    body = {"status": str(word)}
    if event is not None:
        body["event"] = event.event_id
    return JsonResponse(body, status=status)


def exact(answer: Answer) -> HttpResponse:
    """A handshake's answer, to the letter."""
    return HttpResponse(
        answer.body,
        status=answer.status,
        content_type=answer.content_type,
        headers=dict(answer.headers),
    )


def unavailable(word: str, retry_after: int) -> HttpResponse:
    """Nothing was written: ask the provider to come back, in so many seconds."""
    response = plain(SERVICE_UNAVAILABLE, word)
    response.headers["Retry-After"] = str(retry_after)
    return response


def wrong_request(request: HttpRequest, provider: Provider) -> HttpResponse | None:
    """Refuse a method or media type that the provider never uses."""
    if request.method not in provider.methods:
        return HttpResponseNotAllowed(sorted(provider.methods))
    content_type, _ = media_type(request.META.get("CONTENT_TYPE", ""))
    if request.method == "POST" and content_type and not provider.accepts(content_type):
        expected = sorted(provider.content_types)
        logger.warning(
            "webhook refused, its Content-Type is not what %s sends: %s",
            provider.key,
            ", ".join(expected),
        )
        body = {"status": "unsupported_media_type", "expected": expected}
        return JsonResponse(body, status=UNSUPPORTED_MEDIA_TYPE)
    return None


def answer(
    provider: Provider,
    result: Result,
    event: WebhookEvent,
    *,
    status: int = 0,
    replay_response: bool = False,
) -> HttpResponseBase:
    """Answer a delivery that carried an event, with `status` if its row says so already."""
    if result.response is not None:
        return result.response
    if replay_response and result.outcome == Outcome.DUPLICATE and result.event is not None:
        first = replayed(result.event)
        if first is not None:
            return first
    status = status or provider.answer_status(result.outcome, result.error)
    response = plain(status, result.outcome, event)
    if status == SERVICE_UNAVAILABLE:
        wait = provider.retry_after
        if isinstance(result.error, Retry):
            wait = max(wait, round(result.error.after.total_seconds()))
        response.headers["Retry-After"] = str(wait)
    if isinstance(result.error, Reject):
        for name, value in provider.stop_retry_headers.items():
            response.headers[name] = value
    return response
