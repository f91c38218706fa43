"""Read settings from environment variables, and refuse what cannot be meant."""

from __future__ import annotations

import hashlib
import os

from django.core.exceptions import ImproperlyConfigured

_FLAGS = {"1": True, "true": True, "yes": True, "on": True}
_FLAGS |= {"0": False, "false": False, "no": False, "off": False}


def flag(name: str, default: bool) -> bool:
    """A variable that is on or off; unset or empty gives `default`."""
    text = os.environ.get(name, "").strip().lower()
    if not text:
        return default
    if text not in _FLAGS:
        raise ImproperlyConfigured(f"{name} is neither on nor off. Set it to 1 or 0.")
    return _FLAGS[text]


def words(name: str, default: list[str]) -> list[str]:
    """A variable that holds a list separated by commas; unset or empty gives `default`."""
    found = [word.strip() for word in os.environ.get(name, "").split(",")]
    return [word for word in found if word] or default


def given(**names: str) -> dict[str, str]:
    """The settings whose variable, `SETTING="VARIABLE"`, is set to something."""
    return {setting: os.environ[name] for setting, name in names.items() if os.environ.get(name)}


def webhook_secrets(provider: str, demo: str, *, debug: bool) -> list[str]:
    """The secrets of one provider, from `WEBHOOK_SECRET_<PROVIDER>`.

    Anybody can sign with the `demo` value: it serves where the variable is unset, and is refused
    unless `debug`. So is a variable that is set to nothing, always.
    """
    name = f"WEBHOOK_SECRET_{provider.upper()}"
    text = os.environ.get(name)
    secrets = [demo] if text is None else [part.strip() for part in text.split(",")]
    if not all(secrets):
        raise ImproperlyConfigured(f"{name} has an empty secret. Set it, or unset the variable.")
    if demo in secrets and not debug:
        raise ImproperlyConfigured(
            f"Provider {provider!r} has no secret but the public one of the demo. Set {name}, or "
            "DEBUG=1 to try things out."
        )
    return secrets


def secret_key(secrets: list[str], *, debug: bool) -> str:
    """Django's `SECRET_KEY`; unset, it is derived from the webhook secrets.

    So it is secret where they are, and the same in every worker.
    """
    if key := os.environ.get("SECRET_KEY"):
        return key
    if debug:
        return "public-and-only-for-the-demo"
    return hashlib.sha256("\0".join(["SECRET_KEY", *secrets]).encode()).hexdigest()
