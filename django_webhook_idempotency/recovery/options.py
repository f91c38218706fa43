"""Read what RECOVERY says of one source; no value is ever shown, since one may be a key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from ..conf import SETTING
from ..providers import Provider
from .credentials import credential

#: What may stand in a header: a line break would end it.
_KEY = re.compile(r"[!-~]+")
#: An id that may stand in a path or a header.
_ID = re.compile(r"[A-Za-z0-9_-]{1,255}")
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def is_id(value: Any) -> bool:
    """Whether a value is the id of something at the provider, and nothing that leads elsewhere."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def safe_address(value: Any) -> str | None:
    """The base URL of an API, or None where it is none that a key may be sent to.

    Only HTTPS, except to this machine.
    """
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
        is_safe = parts.scheme == "https" or (
            parts.scheme == "http" and parts.hostname in _LOOPBACK
        )
        is_bare = not (parts.query or parts.fragment or "@" in parts.netloc)
        if is_safe and is_bare and parts.hostname and (parts.port is None or parts.port):
            return parts.geturl().rstrip("/")
    except ValueError:
        pass
    return None


class SourceOptions:
    """The options of one source. Each method raises ImproperlyConfigured, naming the setting."""

    def __init__(
        self, provider: Provider, options: Mapping[str, Any], known: Iterable[str]
    ) -> None:
        self._provider = provider
        self._options = options
        for name in options:
            if name not in known:
                raise ImproperlyConfigured(
                    f"{self.where()} has an option {name!r} that its source does not know. "
                    f"Its options: {', '.join(sorted(known))}."
                )

    def where(self, name: str = "") -> str:
        """Where an option stands in the settings."""
        whole = f"{SETTING}['PROVIDERS'][{self._provider.key!r}]['RECOVERY']"
        return f"{whole}[{name!r}]" if name else whole

    def api_key(self, name: str, prefixes: tuple[str, ...]) -> Callable[[], str]:
        """A function that gives the key as it is now, and raises where it cannot be used.

        The option is the key, or a function or its dotted path: then it is asked at each run.
        """
        key = credential(self._options, name, self.where())
        if key is None:
            raise ImproperlyConfigured(f"{self.where(name)} is missing. Set it to a secret key.")
        value = self._options[name]
        if isinstance(value, str) and "." not in value:
            _usable(value.strip(), prefixes, key.where)
        return lambda: _usable(key(), prefixes, key.where)

    def ids(self, name: str) -> list[str]:
        """A list of ids at the provider, each once; empty where the option is absent."""
        value = self._options.get(name, ())
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise ImproperlyConfigured(f"{self.where(name)} should be a list of ids.")
        found = list(value)
        if not all(map(is_id, found)):
            raise ImproperlyConfigured(
                f"{self.where(name)} should be a list of ids: letters, digits, '_' and '-'."
            )
        return list(dict.fromkeys(found))

    def flag(self, name: str, default: bool) -> bool:
        """True or False."""
        value = self._options.get(name, default)
        if not isinstance(value, bool):
            raise ImproperlyConfigured(f"{self.where(name)} should be True or False.")
        return value

    def scope(self) -> str:
        """SCOPE: the scope in the URL that the provider's deliveries come to."""
        value = self._options.get("SCOPE", "")
        if not isinstance(value, str) or "/" in value:
            raise ImproperlyConfigured(
                f"{self.where('SCOPE')} should be the scope in the URL: text without a slash."
            )
        if value and self._provider.scopes is not None and value not in self._provider.scopes:
            raise ImproperlyConfigured(
                f"{self.where('SCOPE')} is not among the provider's SCOPES. Add it there."
            )
        return value

    def address(self, name: str) -> str | None:
        """The base URL of an API, or None where the option is absent."""
        value = self._options.get(name)
        if value is None:
            return None
        address = safe_address(value)
        if address is not None:
            return address
        raise ImproperlyConfigured(
            f"{self.where(name)} should be an https:// address without a user or a query, "
            "or an http:// one on this machine."
        )


def _usable(key: str, prefixes: tuple[str, ...], where: str) -> str:
    if not _KEY.fullmatch(key) or not key.startswith(prefixes):
        raise ImproperlyConfigured(
            f"{where} is no secret key. It should begin with {' or '.join(prefixes)}, and hold no "
            "blank and no line break."
        )
    return key
