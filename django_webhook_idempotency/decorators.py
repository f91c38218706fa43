"""`@idempotent_webhook`: a view of the project's own, run once for each event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, TypeVar, cast

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponseBase

from .entry import open_to_providers, refuse_retentions
from .handlers import Handler, finished, name_of
from .models import WebhookEvent
from .providers import Provider, configured_provider
from .providers.keyed import Keyed
from .reading import plain_request
from .receiver import Key, Receiver

#: The length of the column that says whose an event is.
MAX_SLUG = 64

View = TypeVar("View", bound=Callable[..., Any])


def idempotent_webhook(
    provider: str = "",
    *,
    key: str | Key | None = None,
    atomic: bool = True,
    replay_response: bool = False,
    **options: Any,
) -> Callable[[View], View]:
    """Run a view once for each event of a provider; it finds the event in `webhook_event`.

    Put it outermost. Works on functions and methods, synchronous or not, and above
    `@api_view`. A 2xx means done and is sent as it is; any other answer, or an
    exception, undoes what an `atomic` view wrote, and the event can be delivered again. With
    `replay_response`, a copy gets the first answer's status and body.

    `key` is a header, or a function of the request, that identifies the event instead of the
    provider's own id. With a `provider` that has no class, nothing is verified: let in only
    whom you trust. `options` are the provider's, in lower case. The view's `scope` argument from
    the URL, if it has one, becomes part of the event's scope.

    The view always runs in the request, also where the settings say PROCESSING "queued".

    Raises TypeError if there is neither a provider nor a key, for processing="queued", or for a
    retention, which only the settings can hold.
    """
    if callable(provider) or not (provider or key):
        raise TypeError(
            "Say which webhooks to expect: @idempotent_webhook('stripe'), "
            "or @idempotent_webhook(key='X-Event-Id', provider='partner')."
        )
    refuse_retentions(options)
    if options.get("processing", "inline") != "inline":
        raise TypeError(
            "A decorated view answers by itself, in the request. For the queue, register a "
            "function with @webhook_handler, or write a view class with handle()."
        )
    overrides = {name.upper(): value for name, value in options.items()}

    def decorate(view: View) -> View:
        # Without a provider the keys are the view's own: two views share no event.
        slug = provider or name_of(view)[-MAX_SLUG:]

        def resolve() -> Provider:
            return configured_provider(slug, overrides, Keyed if key else None)

        def receiver(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Receiver, Any]:
            request = _find_request(args)
            django_request = plain_request(request)

            def run(event: WebhookEvent) -> Any:
                return _negotiated(request, finished(view(*args, **kwargs)))

            handler = Handler(run, atomic=atomic, name=name_of(view))
            return (
                Receiver(
                    resolve=resolve,
                    handlers=lambda event: [handler],
                    scope=str(kwargs.get("scope", "")),
                    key=_key_function(key),
                    replay_response=replay_response,
                    prepare=partial(_attach, django_request),
                ),
                request,
            )

        @wraps(view)
        def sync_view(*args: Any, **kwargs: Any) -> HttpResponseBase:
            receive, request = receiver(args, kwargs)
            return receive.receive(request)

        @wraps(view)
        async def async_view(*args: Any, **kwargs: Any) -> HttpResponseBase:
            receive, request = receiver(args, kwargs)
            return await sync_to_async(receive.receive)(request)

        chosen: Any = async_view if iscoroutinefunction(view) else sync_view
        # Lets the system checks see what it expects.
        chosen.webhook_expects = slug, overrides, Keyed if key else None
        return cast(View, open_to_providers(chosen))

    return decorate


def _find_request(args: tuple[Any, ...]) -> Any:
    """The request among a function's or a method's arguments."""
    for argument in args[:2]:
        if isinstance(getattr(argument, "_request", argument), HttpRequest):
            return argument
    raise TypeError("@idempotent_webhook decorates a view: its first argument is the request.")


def _negotiated(request: Any, response: Any) -> Any:
    """Let an answer be rendered at once where Django REST framework would do so only later."""
    renderer = getattr(request, "accepted_renderer", None)
    if renderer is not None and not hasattr(response, "accepted_renderer"):
        response.accepted_renderer = renderer
        response.accepted_media_type = request.accepted_media_type
        response.renderer_context = {**request.parser_context, "request": request}
    return response


def _key_function(key: str | Key | None) -> Key | None:
    if not isinstance(key, str):
        return key
    header = key
    return lambda request: request.headers.get(header, "")


def _attach(request: HttpRequest, event: WebhookEvent) -> None:
    """Give the view its event, and the event's bytes as its body.

    They differ from what came when an unfinished event is delivered again with another body: what
    was stored first is what runs.
    """
    request.webhook_event = event  # type: ignore[attr-defined]
    if event.body is not None:
        request._body = bytes(event.body)
