"""Tokens and keys in the settings, which are read when they are used and shown nowhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

#: No token that a provider gives out looks like a path into a module.
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)


class Credential:
    """A secret from the settings: call it for the text. Its `repr` does not show it."""

    def __init__(self, where: str, read: Callable[[], Any]) -> None:
        self.where = where
        self._read = read

    def __repr__(self) -> str:
        return f"<Credential {self.where}>"

    def __call__(self) -> str:
        """The text as it is now. Raises ImproperlyConfigured without what it came to."""
        try:
            value = self._read()
        except Exception as error:
            # Its text may quote what it read.
            raise ImproperlyConfigured(
                f"The function in {self.where} raised {type(error).__name__}."
            ) from None
        if not isinstance(value, str) or not value.strip():
            raise ImproperlyConfigured(f"{self.where} is empty or no text.")
        return value.strip()


def credential(options: Mapping[str, Any], name: str, where: str) -> Credential | None:
    """The secret under a name: a text, a callable, or the dotted path of one; None without it.

    `where` is the path of the dictionary in the settings. Raises ImproperlyConfigured, never
    showing the value.
    """
    value, where = options.get(name), f"{where}[{name!r}]"
    if value is None:
        return None
    if isinstance(value, str) and _PATH.fullmatch(value):
        try:
            value = import_string(value)
        except ImportError:
            raise ImproperlyConfigured(f"The function in {where} cannot be imported.") from None
        if not callable(value):
            raise ImproperlyConfigured(f"The dotted path in {where} leads to no function.")
    if callable(value):
        return Credential(where, value)
    if not isinstance(value, str) or not value.strip():
        raise ImproperlyConfigured(f"{where} is empty or no text. Make it one, or a function.")
    return Credential(where, lambda: value)
