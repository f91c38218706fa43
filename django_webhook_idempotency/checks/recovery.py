"""Checks of how events are recovered; no provider is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured

from ..recovery import recovery_of
from .targets import targets


def check_recovery(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """The sources that a RECOVERY names can be made."""
    messages = []
    for target in targets():
        if target.view or target.provider.recovery is None:
            continue
        try:
            recovery_of(target.provider)
        except ImproperlyConfigured as error:
            messages.append(
                Error(
                    str(error),
                    hint="Correct it: until then nothing of this provider is recovered.",
                    id="webhooks.E042",
                )
            )
    return messages
