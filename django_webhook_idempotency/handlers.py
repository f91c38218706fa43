"""Handlers: functions that want events of a provider and type."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isasyncgen, isawaitable, isgenerator
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import async_to_sync
from django.utils.module_loading import autodiscover_modules

from .exceptions import WebhookError

if TYPE_CHECKING:
    from .models import WebhookEvent

Function = TypeVar("Function", bound=Callable[..., Any])
#: Something read from an event: a path into its payload such as "data.object.id", or a function.
Reading = str | Callable[[Any], Any]

#: What the column of a run's handler has room for.
MAX_NAME = 255


class HandlerCancelled(WebhookError):
    """The request of an asynchronous handler was cancelled: the provider had hung up."""


def finished(value: Any) -> Any:
    """A value as it is, or what an awaitable comes to.

    Raises TypeError for a generator, of which nothing has run yet.
    """
    if isgenerator(value) or isasyncgen(value):
        raise TypeError("The handler is a generator function: it has a yield, and did not run.")
    return async_to_sync(_wait)(value) if isawaitable(value) else value


async def _wait(value: Awaitable[Any]) -> Any:
    try:
        return await value
    except asyncio.CancelledError as error:
        # As an ordinary failure, so that it is stored and the event can run again.
        raise HandlerCancelled("The request was cancelled while the handler ran.") from error


# Compared by identity: a project's callable need not be hashable.
@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """A function, what it wants, and whether it shares the event's transaction.

    `pattern` is an event type, a prefix such as `invoice.*`, or `*`. An `atomic` handler's writes
    commit together with the event's `processed`; one that isn't runs under a lease. The rest is
    as `webhook_handler` says.
    """

    function: Callable[..., Any]
    provider: str = "*"
    pattern: str = "*"
    atomic: bool = True
    name: str = ""
    max_attempts: int | None = None
    ordering_key: Reading | None = None
    version: Reading | None = None

    @property
    def stored_name(self) -> str:
        """The name as its runs carry it."""
        return self.name[:MAX_NAME]

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

    def holder(self, provider: str, pattern: str, name: str) -> Handler | None:
        """The handler that has this name for these events already."""
        return self._handlers.get((provider, pattern, name))

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
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def webhook_handler(
    provider: str,
    *patterns: str,
    atomic: bool = True,
    name: str = "",
    max_attempts: int | None = None,
    ordering_key: Reading | None = None,
    version: Reading | None = None,
) -> Callable[[Function], Function]:
    """Register a function for a provider's events, by type, `prefix.*` or `*` (the default).

    The function takes the event; returning means done, raising means failed (see `Reject`,
    `Retry` and `Ignore`). Runs are stored under `name`, by default the function's dotted path:
    after a rename, an event that had failed would run the handler again as a new one.

    After `max_attempts` failed runs of its own the handler gives an event up; by default after
    the provider's MAX_ATTEMPTS. Events that share an `ordering_key` are taken one at a time, in
    the order in which they came; it is a path into the payload ("data.object.id") or a function
    of the event, and an event without one is in no order. With a `version`, read likewise, an
    event that is older than the newest one applied to its key is superseded and not run.

    Raises ValueError for a pattern, a number or a version that cannot be used, or for a name that
    another handler has.
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

    if max_attempts is not None and max_attempts < 1:
        raise ValueError(f"max_attempts={max_attempts!r} should be a whole number, one or more.")
    if version is not None and ordering_key is None:
        raise ValueError("version= says what is newer of one object: name it with ordering_key=.")
    if callable(provider):
        raise TypeError("Say whose events: @webhook_handler('stripe', 'invoice.paid').")

    def register(function: Function) -> Function:
        if not callable(function):
            raise TypeError("@webhook_handler decorates a function that takes the event.")
        for pattern in patterns or ("*",):
            holder = registry.holder(provider, pattern, name or name_of(function))
            if holder is not None and not _is_reload(holder.function, function):
                raise ValueError(
                    f"Two handlers are called {holder.name!r} for {provider!r} {pattern!r}, so "
                    "the second would replace the first. Give one of them a name= of its own."
                )
            registry.add(
                Handler(
                    function=function,
                    provider=provider,
                    pattern=pattern,
                    atomic=atomic,
                    name=name or name_of(function),
                    max_attempts=max_attempts,
                    ordering_key=ordering_key,
                    version=version,
                )
            )
        return function

    return register


def _is_reload(old: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Whether `new` is `old`, or what the same lines became when their module was read again."""
    if old is new:
        return True
    was, code = getattr(old, "__code__", None), getattr(new, "__code__", None)
    if was is None or code is None or was is code:  # one code twice: two closures
        return False
    return bool(
        (was.co_filename, was.co_firstlineno, was.co_qualname)
        == (code.co_filename, code.co_firstlineno, code.co_qualname)
    )


def autodiscover() -> None:
    """Import `webhooks.py` of every installed app."""
    autodiscover_modules("webhooks")
