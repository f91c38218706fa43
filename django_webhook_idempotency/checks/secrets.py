"""Checks of secrets. Neither a secret nor a part of one is ever shown.

A function that returns the secrets is not called: it may ask the database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ..exceptions import MissingExtra
from ..providers.secrets import configured_secrets
from ..signatures import Secret
from .targets import Target, targets

_CRYPTO = re.compile(r"\[crypto\]")
_WHERE_FROM = "Set it to the secrets that the provider shows, as a list."


def check_secrets(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """Every provider that signs has a live secret of the right form."""
    messages: dict[str, CheckMessage] = {}
    for target in targets():
        if target.provider.is_signed:
            for message in _problems(target):
                messages.setdefault(message.msg, message)
    return messages.values()


def _problems(target: Target) -> Iterator[CheckMessage]:
    where, value = target.where("SECRETS"), target.provider.secrets
    if isinstance(value, str):
        try:
            value = import_string(value)
        except (ImportError, ValueError):
            yield Error(
                f"{where} is text, and not a path that can be imported.",
                hint="Put the secret into a list, or correct the path of the function.",
                id="webhooks.E009",
            )
            return
    if callable(value):
        return
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable | None):
        yield Error(
            f"{where} is a {type(value).__name__}.",
            hint="Put the secrets into a list.",
            id="webhooks.E009",
        )
        return
    entries = list(value or ())
    live = 0
    for number, entry in enumerate(entries, 1):
        secret, problems = _read(entry, f"{where}, entry {number}", target)
        yield from problems
        live += secret is not None or not _has_ended(entry)
    if not live:
        ended = " any more" if entries else ""
        yield Error(
            f"{target} has no live secret{ended}: nobody is let in.",
            hint=f"{where}: {_WHERE_FROM}",
            id="webhooks.E005",
        )


def _has_ended(entry: Any) -> bool:
    """Whether an entry is one that was rotated out, and nothing is wrong with it."""
    return isinstance(entry, Mapping) and isinstance(entry.get("UNTIL"), datetime)


def _read(entry: Any, where: str, target: Target) -> tuple[Secret | None, list[CheckMessage]]:
    """The secret of one entry if it is live, and what is wrong with it."""
    try:
        secret = configured_secrets([entry], "", where)[0]
    except ImproperlyConfigured as error:
        if _has_ended(entry) and str(error).startswith("There is no live secret"):
            return None, []
        hint = (
            "Is the environment variable set? An entry is text, bytes, or "
            "{'SECRET': ..., 'UNTIL': datetime}."
        )
        return None, [Error(str(error), hint=hint, id="webhooks.E006")]
    raw = entry["SECRET"] if isinstance(entry, Mapping) else entry
    messages: list[CheckMessage] = []
    if raw != raw.strip():
        messages.append(
            Warning(
                f"{where} has white space around it, which is ignored.",
                hint="Paste the secret without the line's end.",
                id="webhooks.W008",
            )
        )
    problem = target.provider.scheme.check_secret(secret) if target.provider.scheme else None
    if problem:
        messages.append(_malformed(where, problem, secret, target))
    return secret, messages


def _malformed(where: str, problem: str, secret: Secret, target: Target) -> CheckMessage:
    if problem == str(MissingExtra("crypto", "An Ed25519 key")):
        return Error(f"{where}: {problem}", hint="Install the extra.", id="webhooks.E013")
    return Error(
        f"{where} (fingerprint {secret.fingerprint}): {problem}",
        hint=f"Copy the secret that {target.provider.name or target.provider.key} shows, whole "
        "and as it is.",
        id="webhooks.E007",
    )
