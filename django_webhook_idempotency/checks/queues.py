"""Checks of what runs queued events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ..conf import SETTING, conf
from ..dispatch.engines.base import BUILT_IN, queue_engine
from ..exceptions import MissingExtra
from ..providers import configured_provider
from .mounted import MountedView, mounted_views
from .targets import targets

_METHODS = ("enqueue", "check")
_HINT = (
    f"Use one of {', '.join(BUILT_IN)}, or the dotted path of a class that can be called without "
    "arguments and has `sends_messages` and the methods enqueue and check."
)


def check_queue(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """The queue engine can be made, and finds nothing wrong itself.

    Asked only where something is queued or the project has chosen an engine.
    """
    try:
        whole, path = conf.all, conf.queue
    except ImproperlyConfigured:
        return []
    if "QUEUE" not in whole and not _something_is_queued():
        return []
    try:
        engine_class = import_string(BUILT_IN.get(path, path))
    except ImportError as error:
        return [_unusable(f"cannot be imported: {error}")]
    missing = [name for name in _METHODS if not callable(getattr(engine_class, name, None))]
    if missing:
        return [_unusable(f"lacks {', '.join(missing)}")]
    try:
        engine = queue_engine()
    except MissingExtra as error:
        return [Error(str(error), hint="Install the extra.", id="webhooks.E037")]
    except Exception as error:
        return [_unusable(f"cannot be made: {type(error).__name__}: {error}")]
    if not isinstance(getattr(engine, "sends_messages", None), bool):
        return [_unusable("lacks `sends_messages`, True or False")]
    return engine.check()


def _something_is_queued() -> bool:
    return any(target.provider.processing == "queued" for target in targets())


def check_enqueue_timeout(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """The time that an acknowledgement waits for a broker is one."""
    try:
        value = conf.all.get("ENQUEUE_TIMEOUT", 1.0)
    except ImproperlyConfigured:
        return []
    if not isinstance(value, bool) and isinstance(value, int | float) and value > 0:
        return []
    return [
        Error(
            f"{SETTING}['ENQUEUE_TIMEOUT'] should be a number of seconds above zero.",
            hint="Leave it out for one second.",
            id="webhooks.E038",
        )
    ]


def check_queued_views(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """A worker can import every view class whose events are queued."""
    return [
        Warning(
            f"{view.name} handles its events itself and is queued, but no worker can import it: "
            "they are handled in the request.",
            hint="Define the class at the top of a module, or set processing = 'inline' on it.",
            id="webhooks.W039",
        )
        for view in mounted_views()
        if view.is_stranded and _is_queued(view)
    ]


def _is_queued(view: MountedView) -> bool:
    try:
        return configured_provider(view.provider, view.overrides).processing == "queued"
    except ImproperlyConfigured:
        return False


def _unusable(problem: str) -> CheckMessage:
    return Error(
        f"{SETTING}['QUEUE'] is {conf.queue!r}, which {problem}.", hint=_HINT, id="webhooks.E037"
    )
