"""Take a delivery out of an HTTP request before anything else touches its bytes."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.http import HttpRequest, RawPostDataException, UnreadablePostError

from .exceptions import BodyAlreadyRead, BodyTooLarge, MalformedWebhook
from .models import displayable
from .providers import Incoming, Provider
from .providers.incoming import media_type
from .signatures import Message

#: Headers kept on the row of every delivery, besides those that its provider names.
KEPT_HEADERS = frozenset({"content-length", "content-type", "user-agent"})


def plain_request(request: Any) -> HttpRequest:
    """Django's own request, also from inside Django REST framework's."""
    inner = getattr(request, "_request", request)
    if not isinstance(inner, HttpRequest):
        raise TypeError(f"Expected a request, got {type(request).__name__}.")
    return inner


def read_body(request: HttpRequest, limit: int) -> bytes:
    """Return the raw body.

    Raises BodyTooLarge over `limit` bytes or over Django's own limit, MalformedWebhook if the
    client went away, BodyAlreadyRead if somebody consumed the stream.
    """
    declared = request.META.get("CONTENT_LENGTH") or ""
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise BodyTooLarge(f"The body has more than {limit} bytes.")
    try:
        body = request.body
    except RequestDataTooBig:
        raise BodyTooLarge("The body exceeds DATA_UPLOAD_MAX_MEMORY_SIZE.") from None
    except UnreadablePostError:
        raise MalformedWebhook("The body could not be read to its end.") from None
    except RawPostDataException:
        raise BodyAlreadyRead(
            "The request body was read before the webhook receiver saw it, by middleware, "
            "request.POST or a parser. A signature covers the raw bytes: put the receiver first, "
            "or let what comes before it use request.body."
        ) from None
    if len(body) > limit:
        raise BodyTooLarge(f"The body has more than {limit} bytes.")
    return body


def read(request: HttpRequest, provider: Provider) -> Incoming:
    """Read a request whole. Raises as `read_body` does."""
    body = read_body(request, provider.max_body)
    content_type, charset = media_type(request.META.get("CONTENT_TYPE", ""))
    return Incoming(
        message=Message(
            body=body,
            headers={name.lower(): value for name, value in request.headers.items()},
            method=request.method or "",
        ),
        content_type=content_type,
        charset=charset,
        query=_query(request),
    )


def _query(request: HttpRequest) -> dict[str, str]:
    try:
        return request.GET.dict()
    except SuspiciousOperation:
        raise MalformedWebhook("The query string has too many parameters.") from None


def kept_headers(request: HttpRequest, provider: Provider) -> dict[str, str]:
    """The headers that are worth a place on the delivery's row: an allow-list, cut to size."""
    kept = KEPT_HEADERS | {name.lower() for name in provider.kept_headers}
    return {
        name.lower(): displayable(value)
        for name, value in request.headers.items()
        if name.lower() in kept
    }
