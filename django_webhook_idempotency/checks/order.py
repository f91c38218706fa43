"""Checks of ordering keys: in a request, only a transaction keeps the other events out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.checks import CheckMessage, Error

from ..handlers import Handler, registry
from .targets import Target, targets


def check_order(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """No event that runs under a lease in the request has a handler with an order."""
    messages: dict[str, CheckMessage] = {}
    for target in targets():
        if target.provider.processing == "queued" or target.view:
            continue
        for handler in registry:
            if handler.ordering_key is not None and _of(handler, target):
                for text in _reasons(handler, target):
                    messages[text] = Error(text, hint=_hint(target), id="webhooks.E040")
    return messages.values()


def _reasons(handler: Handler, target: Target) -> Iterable[str]:
    """Why the handler's events would be refused."""
    slug = target.provider.key
    if not handler.atomic:
        yield f"Handler {handler.name} has an ordering_key and atomic=False, in {slug}'s requests."
        return
    for other in registry:
        if not other.atomic and _of(other, target) and _may_meet(handler, other):
            yield (
                f"Handler {handler.name} has an ordering_key, and {other.name}, which wants the "
                f"same events, atomic=False, in {slug}'s requests."
            )
            return


def _of(handler: Handler, target: Target) -> bool:
    return handler.provider in ("*", target.provider.key)


def _may_meet(one: Handler, other: Handler) -> bool:
    """Whether some event type is for both."""
    if "*" in (one.pattern, other.pattern):
        return True
    first, second = (each.pattern.removesuffix("*") for each in (one, other))
    if one.pattern == first and other.pattern == second:
        return first == second
    long, short = (one, second) if len(first) >= len(second) else (other, first)
    return long.pattern.startswith(short) and (long.pattern == short or short.endswith("."))


def _hint(target: Target) -> str:
    return (
        f"Set WEBHOOK_IDEMPOTENCY['PROVIDERS'][{target.provider.key!r}]['PROCESSING'] to 'queued', "
        "or let the handlers be atomic. Until then these events are answered 503."
    )
