"""What RECOVERY says of GitHub: which hooks, and who asks."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..providers import options
from .credentials import Credential, credential
from .github_api import PUBLIC, app_login, token_login
from .options import safe_address

KNOWN = ("HOOKS", "TOKEN", "APP_ID", "PRIVATE_KEY", "BASE_URL", "PAUSE")
_ENTRY = frozenset({"repo", "org", "app", "hook_id", "scope"})
_NAME = r"[A-Za-z0-9_.-]+"
_EXAMPLES = "{'repo': 'o/r', 'hook_id': 1}, {'org': 'o', 'hook_id': 2} or {'app': True}"


@dataclass(frozen=True)
class Hook:
    """One hook: where the API has it, and what tells its events apart here.

    `owner` is the path of the repository or organisation, empty for an app's hook. `number` is
    None for an app's hook whose id has to be asked for.
    """

    owner: str
    number: int | None
    scope: str = ""

    @property
    def path(self) -> str:
        """The path of the hook in the API."""
        return f"{self.owner}/hooks/{self.number}" if self.owner else "/app/hook"

    @property
    def key(self) -> str:
        """The hook's name among those of its provider."""
        name = f"{self.owner.lstrip('/')}/hooks/{self.number}" if self.owner else "app"
        return f"{name} {self.scope}".rstrip()


@dataclass(frozen=True)
class Login:
    """Who asks, and where."""

    base_url: str
    enter: Callable[[], Any]
    pause: float
    is_app: bool


def refuse_unknown(entries: Mapping[str, Any], setting: str) -> None:
    """Raise ImproperlyConfigured for an entry that means nothing here."""
    for name in entries:
        if name not in KNOWN:
            raise ImproperlyConfigured(
                f"{setting}[{name!r}] is not known. Known are "
                f"{', '.join(sorted((*KNOWN, 'ALARM', 'ATTEMPTS', 'SOURCE', 'VIEW')))}."
            )


def read_hooks(
    entries: Mapping[str, Any], setting: str, scopes: Collection[str] | None
) -> list[Hook]:
    """The hooks to ask for; `scopes` are the provider's. Raises ImproperlyConfigured."""
    hooks = entries.get("HOOKS")
    if not isinstance(hooks, list | tuple) or not hooks:
        raise ImproperlyConfigured(f"{setting}['HOOKS'] should be a list of {_EXAMPLES}.")
    found = [_hook(entry, f"{setting}['HOOKS'][{place}]") for place, entry in enumerate(hooks)]
    for place, hook in enumerate(found):
        if hook.scope and scopes is not None and hook.scope not in scopes:
            raise ImproperlyConfigured(
                f"{setting}['HOOKS'][{place}]['scope'] is not among the provider's SCOPES. Add it "
                "there."
            )
    return found


def _hook(entry: Any, setting: str) -> Hook:
    if not isinstance(entry, Mapping) or not set(entry) <= _ENTRY:
        raise ImproperlyConfigured(f"{setting} should be one of {_EXAMPLES}, and 'scope' with it.")
    number, scope = entry.get("hook_id"), entry.get("scope", "")
    if not isinstance(scope, str):
        raise ImproperlyConfigured(f"{setting}['scope'] should be the scope in the URL, a text.")
    kinds = [kind for kind in ("repo", "org", "app") if entry.get(kind)]
    if len(kinds) != 1:
        raise ImproperlyConfigured(f"{setting} should be one of {_EXAMPLES}.")
    if number is None and kinds == ["app"]:
        return Hook("", None, scope)
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ImproperlyConfigured(f"{setting}['hook_id'] should be the hook's number.")
    if kinds == ["app"]:
        return Hook("", number, scope)
    name, pattern = entry[kinds[0]], f"{_NAME}/{_NAME}" if kinds == ["repo"] else _NAME
    if not isinstance(name, str) or not re.fullmatch(pattern, name, re.ASCII):
        form = "'owner/name'" if kinds == ["repo"] else "an organisation's name"
        raise ImproperlyConfigured(f"{setting}[{kinds[0]!r}] should be {form}.")
    return Hook(f"/{kinds[0]}s/{name}", number, scope)


def read_login(entries: Mapping[str, Any], setting: str, *, is_enterprise: bool) -> Login:
    """Who asks for deliveries. Raises ImproperlyConfigured, and shows no secret."""
    token = credential(entries, "TOKEN", setting)
    key, number = credential(entries, "PRIVATE_KEY", setting), entries.get("APP_ID")
    if (token is None) == (key is None) or (key is None) != (number is None):
        raise ImproperlyConfigured(
            f"{setting} should have either a TOKEN, or an APP_ID and a PRIVATE_KEY."
        )
    return Login(
        _base_url(entries, setting, is_enterprise=is_enterprise),
        _entrance(token, key, number),
        _pause(entries, setting),
        token is None,
    )


def _entrance(token: Credential | None, key: Credential | None, number: Any) -> Callable[[], Any]:
    if token is not None:
        return lambda: token_login(token())
    assert key is not None  # noqa: S101
    return lambda: app_login(str(number), key())


def _base_url(entries: Mapping[str, Any], setting: str, *, is_enterprise: bool) -> str:
    url = entries.get("BASE_URL")
    if url is None and not is_enterprise:
        return PUBLIC
    address = safe_address(url)
    if address is None:
        raise ImproperlyConfigured(
            f"{setting}['BASE_URL'] should be the URL of the API, such as "
            "'https://github.example.com/api/v3': http:// only on this machine, and without a user "
            "or a query."
        )
    return address


def _pause(entries: Mapping[str, Any], setting: str) -> float:
    try:
        return options.seconds(entries.get("PAUSE", 1.0))
    except ValueError as error:
        raise ImproperlyConfigured(f"{setting}['PAUSE'] should be {error}.") from None
