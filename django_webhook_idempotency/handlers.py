"""Handlers: functions that want events of a provider and type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import async_to_sync
from django.utils.module_loading import autodiscover_modules

if TYPE_CHECKING:
    from .models import WebhookEvent

Function = TypeVar("Function", bound=Callable[..., Any])


def finished(value: Any) -> Any:
    """A value as it is, or what an awaitable comes to; a coroutine is never left unawaited."""
    return async_to_sync(_wait)(value) if isawaitable(value) else value


async def _wait(value: Awaitable[Any]) -> Any:
    return await value


@dataclass(frozen=True, slots=True)
class Handler:
    """A function, what it wants, and whether it shares the event's transaction.

    `pattern` is an event type, a prefix such as `invoice.*`, or `*`. An `atomic` handler's writes
    commit together with the event's `processed`; one that isn't runs under a lease.
    """

    function: Callable[..., Any]
    provider: str = "*"
    pattern: str = "*"
    atomic: bool = True
    name: str = ""

    def wants(self, provider: str, event_type: str) -> bool:
        """Whether this handler is for events of that provider and type."""
        if self.provider not in ("*", provider):
            return False
        if self.pattern.endswith(".*"):
            return event_type.startswith(self.pattern[:-1])
        return self.pattern in ("*", event_type)

    def __call__(self, event: WebhookEvent) -> Any:
        """Run it to its end; a coroutine runs in this thread's transaction."""
        return finished(self.function(event))


class Registry:
    """The handlers of a project, in the order in which they were registered."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[str, str, str], Handler] = {}

    def add(self, handler: Handler) -> None:
        """Register a handler; the same function for the same events replaces itself."""
        self._handlers[handler.provider, handler.pattern, handler.name] = handler

    def remove(self, function: Callable[..., Any]) -> None:
        """Forget every registration of a function."""
        self._handlers = {
            key: handler
            for key, handler in self._handlers.items()
            if handler.function is not function
        }

    def find(self, provider: str, event_type: str) -> list[Handler]:
        """The handlers of an event; each function once, even if two of its patterns match."""
        found: dict[str, Handler] = {}
        for handler in self._handlers.values():
            if handler.wants(provider, event_type):
                found.setdefault(handler.name, handler)
        return list(found.values())

    def __iter__(self) -> Any:
        return iter(self._handlers.values())


registry = Registry()


def name_of(function: Callable[..., Any]) -> str:
    """The name under which runs of a function are stored."""
    return f"{function.__module__}.{function.__qualname__}"


def webhook_handler(
    provider: str, *patterns: str, atomic: bool = True, name: str = ""
) -> Callable[[Function], Function]:
    """Register a function for a provider's events, by type, `prefix.*` or `*` (the default).

    The function takes the event; returning means done, raising means failed (see `Reject`,
    `Retry` and `Ignore`). Runs are stored under `name`, by default the function's dotted path:
    after a rename, an event that had failed would run the handler again as a new one.
    """
    for pattern in patterns:
        if (
            "*" in pattern
            and pattern != "*"
            and not (pattern.endswith(".*") and pattern.count("*") == 1)
        ):
            raise ValueError(
                f"Pattern {pattern!r} is not supported. Use a full type, 'prefix.*' or '*'."
            )

    def register(function: Function) -> Function:
        if not callable(function):
            raise TypeError("@webhook_handler decorates a function that takes the event.")
        for pattern in patterns or ("*",):
            registry.add(
                Handler(
                    function=function,
                    provider=provider,
                    pattern=pattern,
                    atomic=atomic,
                    name=name or name_of(function),
                )
            )
        return function

    return register


def autodiscover() -> None:
    """Import `webhooks.py` of every installed app."""
    autodiscover_modules("webhooks")
