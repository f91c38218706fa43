"""What the URLconf holds, and what lies beneath what it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from inspect import isfunction, ismethod
from typing import Any

from django.conf import settings
from django.urls import URLPattern, get_resolver
from django.views import View

from ..providers import Provider
from ..views import ReceivesWebhooks

#: How far into wrappers a receiver is looked for.
MAX_DEPTH = 12


@dataclass(frozen=True)
class Route:
    """One entry of the URLconf."""

    path: str
    callback: Any

    @property
    def name(self) -> str:
        """The view and its path, as a person would look for them."""
        view = name_of(self.callback)
        return f"{view} (at {self.path!r})"


@dataclass(frozen=True)
class MountedView:
    """A view with a provider of its own; `overrides` are options under upper-case names.

    `is_stranded` says that it handles its events itself and no worker can import it.
    """

    name: str
    provider: str
    overrides: Mapping[str, Any]
    default: type[Provider] | None
    runs_handlers: bool
    is_stranded: bool = False


def name_of(view: Any) -> str:
    """The dotted path of a view."""
    view = getattr(view, "view_class", view)
    named = view if hasattr(view, "__qualname__") else type(view)
    return f"{named.__module__}.{named.__qualname__}"


def routes() -> Iterator[Route]:
    """Every view of the project's URLconf."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return
    # Where a URLconf cannot be read, Django's own check says so.
    with suppress(Exception):
        yield from _routes(get_resolver().url_patterns, "")


def _routes(patterns: Iterable[Any], prefix: str) -> Iterator[Route]:
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield Route(path, pattern.callback)
        else:
            yield from _routes(pattern.url_patterns, path)


def mounted_views() -> Iterator[MountedView]:
    """Every mounted view that knows its provider, once."""
    seen: set[int] = set()
    for route in routes():
        callback = route.callback
        if id(callback) in seen or not getattr(callback, "webhook_receiver", False):
            continue
        seen.add(id(callback))
        view_class = getattr(callback, "view_class", None)
        if isinstance(view_class, type) and issubclass(view_class, ReceivesWebhooks):
            options = callback.view_initkwargs.get("overrides", {})
            slug = callback.view_initkwargs.get("provider", view_class.provider)
            stranded = view_class.worker_view() is None
            yield MountedView(route.name, slug, options, None, True, stranded)
        elif expects := getattr(callback, "webhook_expects", None):
            slug, options, default = expects
            yield MountedView(route.name, slug, options, default, False)


def receiver_beneath(view: Any) -> Any:
    """The receiver that a callable wraps, as far as can be seen; None if there is none."""
    seen: set[int] = set()
    level = list(_inside(view))
    for _ in range(MAX_DEPTH):
        level = [inner for inner in level if id(inner) not in seen]
        seen.update(map(id, level))
        for inner in level:
            if getattr(inner, "webhook_receiver", False):
                return inner
        level = [deeper for inner in level for deeper in _inside(inner)]
    return None


def receiving_method(view_class: type) -> Any:
    """The decorated method of a view class, None if there is none."""
    for method in _methods(view_class):
        if getattr(method, "webhook_receiver", False) or receiver_beneath(method):
            return method
    return None


def _inside(view: Any) -> Iterator[Any]:
    """The callables that a callable visibly holds on to."""
    held: list[Any] = [getattr(view, "__wrapped__", None)]
    if isinstance(view, partial):
        held += [view.func, *view.args]
    elif ismethod(view):
        held += [view.__func__, *getattr(view.__self__, "__dict__", {}).values()]
    elif isfunction(view):
        held += _closed_over(view)
    else:
        held += getattr(view, "__dict__", {}).values()
    for one in held:
        if isinstance(one, type):
            if issubclass(one, View):
                yield from _methods(one)
        elif callable(one):
            yield one


def _closed_over(function: Any) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # one that is not filled yet
            yield cell.cell_contents


def _methods(view_class: type) -> Iterator[Any]:
    for owner in view_class.__mro__:
        yield from filter(isfunction, vars(owner).values())
