"""What the server for browsers does besides: log everybody in, forbid inline code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth import get_user_model
from django.http import HttpRequest, HttpResponse

Next = Callable[[HttpRequest], HttpResponse]


def content_security_policy(get_response: Next) -> Next:
    """Send the policy that the admin promises to work under; one page of its own breaks it."""

    def answer(request: HttpRequest) -> HttpResponse:
        if request.path == "/violation/":
            response = HttpResponse("<p style='color: red'>breaks the policy</p>")
        else:
            response = get_response(request)
        response.headers["Content-Security-Policy"] = "default-src 'self'"
        return response

    return answer


def logged_in(get_response: Next) -> Next:
    """Make every visitor the first user."""

    def answer(request: HttpRequest) -> Any:
        request.user = request._cached_user = get_user_model().objects.get(pk=1)  # type: ignore[attr-defined]
        return get_response(request)

    return answer
