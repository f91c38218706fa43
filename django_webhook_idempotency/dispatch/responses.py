"""A view's answer, kept so that a copy of its event can be answered the same way."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse, HttpResponseBase

from ..models import WebhookEvent


def rendered(response: HttpResponseBase) -> HttpResponseBase:
    """Render a deferred response now, so that an error in it undoes the handler's work too."""
    if not getattr(response, "is_rendered", True):
        response.render()  # type: ignore[attr-defined]
    return response


def remembered(value: Any) -> dict[str, Any]:
    """The columns that keep an answer. Raises TypeError for one that has no body to keep."""
    if not isinstance(value, HttpResponseBase):
        return {}
    if not isinstance(value, HttpResponse):
        raise TypeError(
            "replay_response=True needs an answer with a body, not a streaming response."
        )
    return {
        "response_status": value.status_code,
        "response_content_type": value.headers.get("Content-Type", "")[:255],
        "response_body": value.content,
    }


def replayed(event: WebhookEvent) -> HttpResponse | None:
    """The answer that was kept with an event; None once its body has been purged."""
    if event.response_status is None or event.response_body is None:
        return None
    return HttpResponse(
        bytes(event.response_body),
        status=event.response_status,
        content_type=event.response_content_type or None,
    )
