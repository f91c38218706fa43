"""Find what a stored event needs to run: its provider, its handlers, its payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ..exceptions import HandlerMissing
from ..handlers import Handler, registry
from ..models import WebhookEvent
from ..providers import Provider, configured_provider
from .runs import read_stored
from .work import DeliveryReport, Work


class QueuedView(Protocol):
    """A view class whose events a worker can handle."""

    @classmethod
    def for_worker(cls) -> tuple[Handler, Mapping[str, Any]]:
        """The handler, and the options of the provider that the class overrides."""
        ...

    @classmethod
    def for_quarantine(cls) -> tuple[Handler | None, Mapping[str, Any]]:
        """The same; without a handler where the registered ones run."""
        ...


def view_at(path: str) -> type[QueuedView]:
    """The view class at a dotted path, which may lead into another class.

    Raises ImproperlyConfigured.
    """
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            found: Any = import_string(".".join(parts[: count + 1]))
        except ImportError:
            continue
        for name in parts[count + 1 :]:
            found = getattr(found, name, None)
        if hasattr(found, "for_worker"):
            view: type[QueuedView] = found
            return view
    raise ImproperlyConfigured(
        f"{path!r} is no view class that a worker can import. Define it at the top of a module, "
        "or give the events back to the request with processing='inline'."
    )


def provider_again(slug: str, view: str) -> Provider:
    """The provider as the view of a kept delivery had it. Raises ImproperlyConfigured."""
    overrides = view_at(view).for_quarantine()[1] if view else {}
    return configured_provider(slug, overrides)


def work_again(event: WebhookEvent, view: str, report: DeliveryReport) -> Work:
    """What the event of a kept delivery needs to run. Raises ImproperlyConfigured."""
    handler = view_at(view).for_quarantine()[0] if view else None
    handlers = [handler] if handler else registry.find(event.provider, event.event_type)
    event.view = view if handler else ""
    return Work(report.provider, handlers, report, view=event.view)


def work_of(event: WebhookEvent) -> Work:
    """What a stored event needs to run. Raises ImproperlyConfigured."""
    overrides: Mapping[str, Any] = {}
    if event.view:
        handler, overrides = view_at(event.view).for_worker()
        handlers = [handler]
    else:
        handlers = registry.find(event.provider, event.event_type)
        if not handlers:
            # It was wanted when it was stored: this process may be older or newer than that one.
            raise HandlerMissing(
                f"No handler is registered any more for {event.event_type!r} of "
                f"{event.provider!r}. Bring it back, or register one that raises Ignore."
            )
    provider = configured_provider(event.provider, overrides)
    read_stored(event, event, provider)
    report = DeliveryReport(provider)
    return Work(provider, handlers, report, view=event.view, acknowledged=True)
