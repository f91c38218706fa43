"""System checks: what is wrong with a project's settings, with a hint each.

Ids are stable and never used again for something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.checks import CheckMessage, Tags
from django.core.checks import register as register_check
from django.core.exceptions import ImproperlyConfigured

from .stores import lease_store


def check_store(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """The lease store says what is wrong with it."""
    try:
        return lease_store().check()
    except ImproperlyConfigured:
        return []


def register() -> None:
    """Register every check; called once when the app is ready."""
    register_check(check_store, Tags.caches)
