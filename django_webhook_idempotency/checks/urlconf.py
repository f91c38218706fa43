"""Checks of what stands around the views: Django looks only at what the URLconf holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.db import connections
from django.middleware.csrf import CsrfViewMiddleware
from django.utils.module_loading import import_string

from ..handlers import registry
from .mounted import Route, mounted_views, receiver_beneath, receiving_method, routes
from .targets import readable_providers

_ON_DISPATCH = (
    "Decorate the whole class: @method_decorator(idempotent_webhook(...), name='dispatch')."
)
_OUTERMOST = (
    "Put @idempotent_webhook or as_view() outermost, or let what wraps it carry its attributes "
    "over with functools.wraps."
)


@dataclass(frozen=True)
class Lost:
    """The exemptions that Django does not see on a view, though its receiver has them."""

    csrf: bool
    atomic: list[str]

    def __bool__(self) -> bool:
        return self.csrf or bool(self.atomic)

    def __str__(self) -> str:
        parts = []
        if self.csrf:
            parts.append("a delivery has no CSRF token and is answered 403")
        if self.atomic:
            parts.append(
                f"ATOMIC_REQUESTS of {', '.join(map(repr, self.atomic))} opens a transaction "
                "around it and a delivery is answered 503, or 500 where the view is async"
            )
        return "; ".join(parts)


def check_views(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """Every receiver is mounted so that Django sees its exemptions."""
    protected = _checks_csrf()
    messages: dict[str, CheckMessage] = {}
    for route in routes():
        lost = _lost(route.callback, protected)
        for message in _mistakes(route, lost) if lost else ():
            messages.setdefault(f"{message.id} {message.msg}", message)
    return messages.values()


def _mistakes(route: Route, lost: Lost) -> Iterator[CheckMessage]:
    view_class = getattr(route.callback, "view_class", None)
    method = receiving_method(view_class) if isinstance(view_class, type) else None
    if method is not None and method.__module__ == "rest_framework.decorators":
        hint = "Swap them: @idempotent_webhook first, @api_view below it."
        text = f"@api_view is above @idempotent_webhook on {route.name}: {lost}."
        yield Error(text, hint=hint, id="webhooks.E027")
    elif method is not None:
        text = f"@idempotent_webhook is on {method.__name__}() of {route.name}: {lost}."
        yield Error(text, hint=_ON_DISPATCH, id="webhooks.E026")
    elif getattr(route.callback, "webhook_receiver", False) or receiver_beneath(route.callback):
        if lost.csrf:
            text = f"{route.name} hides a webhook view: {Lost(True, [])}."
            yield Error(text, hint=_OUTERMOST, id="webhooks.E024")
        if lost.atomic:
            text = f"{route.name} hides a webhook view: {Lost(False, lost.atomic)}."
            yield Error(text, hint=_OUTERMOST, id="webhooks.E025")


def _lost(callback: Any, protected: bool) -> Lost:
    exempt: set[str] = getattr(callback, "_non_atomic_requests", set())
    return Lost(
        csrf=protected and not getattr(callback, "csrf_exempt", False),
        atomic=[
            alias
            for alias, database in connections.settings.items()
            if database.get("ATOMIC_REQUESTS") and alias not in exempt
        ],
    )


def _checks_csrf() -> bool:
    """Whether the project asks for CSRF tokens at all."""
    for path in settings.MIDDLEWARE:
        try:
            middleware = import_string(path)
        except ImportError:
            continue
        if isinstance(middleware, type) and issubclass(middleware, CsrfViewMiddleware):
            return True
    return False


def check_handlers(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """Every registered handler is for a provider that something receives."""
    receiving = {"*", *readable_providers()}
    receiving |= {view.provider for view in mounted_views() if view.runs_handlers}
    lonely: dict[str, list[str]] = {}
    for name, provider in {handler.name: handler.provider for handler in registry}.items():
        if provider not in receiving:
            lonely.setdefault(provider, []).append(name)
    return [
        Warning(
            f"{', '.join(names[:3])}{' and others' if len(names) > 3 else ''}: registered for "
            f"provider {provider!r}, of which nothing is received.",
            hint="Add the provider to WEBHOOK_IDEMPOTENCY['PROVIDERS'], or correct its name in "
            "@webhook_handler.",
            id="webhooks.W028",
        )
        for provider, names in lonely.items()
    ]
