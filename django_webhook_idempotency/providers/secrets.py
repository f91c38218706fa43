"""Turn the SECRETS option into secrets that are live now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError
from django.http import Http404
from django.utils import timezone
from django.utils.module_loading import import_string

from ..exceptions import UnknownScope
from ..signatures import Secret

_DOTTED_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


@dataclass(frozen=True)
class Entry:
    """One entry of SECRETS: a secret, and until when it is let in; None for no end."""

    secret: Secret
    until: datetime | None = None

    @property
    def is_live(self) -> bool:
        """Whether it may verify a delivery now."""
        # Not timezone.now(): that is naive where USE_TZ is False.
        return self.until is None or datetime.now(UTC) < self.until


def configured_secrets(option: Any, scope: str, where: str) -> list[Secret]:
    """The secrets of the SECRETS option found at `where` that are live now.

    It is a list of secrets, or a callable (or its dotted path) that takes the scope in the URL
    and returns such a list. An entry is text, bytes, or `{"SECRET": ..., "UNTIL": datetime}` for
    one that is being rotated out. Raises ImproperlyConfigured for anything else, for an empty
    secret, which would let everybody in, and when none is live; UnknownScope when a callable
    knows no secret of a scope that isn't blank.
    """
    entries = secret_entries(option, scope, where)
    if not entries and scope and not isinstance(option, list | tuple):
        raise UnknownScope(f"There is no secret for the scope {scope!r}.")
    secrets = [entry.secret for entry in entries if entry.is_live]
    if not secrets:
        raise ImproperlyConfigured(f"There is no live secret. Set {where} to a list of secrets.")
    return secrets


def secret_entries(option: Any, scope: str, where: str) -> list[Entry]:
    """Every entry of SECRETS, those that have ended too. Raises ImproperlyConfigured."""
    return [_read(entry, where) for entry in _entries(option, scope, where)]


def _entries(option: Any, scope: str, where: str) -> Iterable[Any]:
    if isinstance(option, str):
        if not _DOTTED_PATH.fullmatch(option):
            raise ImproperlyConfigured(f"{where} is text. Put the secret into a list.")
        try:
            option = import_string(option)
        except ImportError:
            raise ImproperlyConfigured(
                f"{where} is text that is not the path of a function. "
                "Give a list of secrets, or the dotted path of a function that returns one."
            ) from None
    if callable(option):
        option = _called(option, scope, where)
    if option is None:
        return ()
    if isinstance(option, str | bytes | Mapping) or not isinstance(option, Iterable):
        raise ImproperlyConfigured(f"{where} is not a list. Put the secrets into a list.")
    return option


def _called(function: Any, scope: str, where: str) -> Any:
    """Call the function that knows the secrets; a look-up that fails means an unknown scope."""
    try:
        return function(scope)
    except (DatabaseError, Http404):
        raise
    except LookupError:
        if scope:
            return ()
        raise ImproperlyConfigured(f"{where} knows no secret without a scope.") from None
    except Exception as error:
        raise ImproperlyConfigured(f"{where} raised {type(error).__name__}.") from error


def _read(entry: Any, where: str) -> Entry:
    until = None
    if isinstance(entry, Mapping):
        if not entry.keys() <= {"SECRET", "UNTIL"}:
            # A misspelt UNTIL would let the old secret in for ever.
            raise ImproperlyConfigured(
                f"{where} has an entry with other keys than SECRET and UNTIL."
            )
        until = entry.get("UNTIL")
        entry = entry.get("SECRET")
        if until is not None and not isinstance(until, datetime):
            raise ImproperlyConfigured(f"{where} has an UNTIL that is not a datetime.")
    if not isinstance(entry, str | bytes):
        raise ImproperlyConfigured(f"{where} has an entry that is neither text nor bytes.")
    try:
        secret = Secret.parse(entry)
    except ValueError as error:
        raise ImproperlyConfigured(
            f"{where} has an entry that cannot be used. {error} Is the environment variable set?"
        ) from None
    if until is not None and timezone.is_naive(until):
        until = timezone.make_aware(until)
    return Entry(secret, until)
