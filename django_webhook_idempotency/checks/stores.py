"""Checks of the lease store.

A store of the project's own that keeps its leases in the memory of one process has to say so with
a class attribute `shared = False`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.cache.backends.dummy import DummyCache
from django.core.cache.backends.locmem import LocMemCache
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ..conf import SETTING, conf
from ..stores import lease_store
from ..stores.base import BUILT_IN

_METHODS = ("acquire", "renew", "release", "check")
_IN_PROCESS = (LocMemCache, DummyCache)
_HINT = (
    f"Use one of {', '.join(BUILT_IN)}, or the dotted path of a class that can be called without "
    "arguments and has `exclusive` and the methods acquire, renew, release and check."
)


def check_store(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """The lease store can be made, is seen by every process, and finds nothing wrong itself."""
    try:
        path = conf.store
        store_class = import_string(BUILT_IN.get(path, path))
    except ImproperlyConfigured:
        return []
    except ImportError as error:
        return [_unusable(f"cannot be imported: {error}")]
    if not getattr(store_class, "shared", True) or (
        isinstance(store_class, type) and issubclass(store_class, _IN_PROCESS)
    ):
        return [
            Error(
                f"{SETTING}['STORE'] is {path!r}, which lives in the memory of one process: "
                "another one would run the same event beside it.",
                hint=f"Use one of {', '.join(BUILT_IN)}.",
                id="webhooks.E015",
            )
        ]
    missing = [name for name in _METHODS if not callable(getattr(store_class, name, None))]
    if missing:
        return [_unusable(f"lacks {', '.join(missing)}")]
    try:
        store = lease_store()
    except Exception as error:
        return [_unusable(f"cannot be made: {type(error).__name__}: {error}")]
    if not isinstance(getattr(store, "exclusive", None), bool):
        return [_unusable("lacks `exclusive`, True or False")]
    return store.check()


def _unusable(problem: str) -> CheckMessage:
    return Error(
        f"{SETTING}['STORE'] is {conf.store!r}, which {problem}.", hint=_HINT, id="webhooks.E014"
    )
