"""Live, typed access to `WEBHOOK_IDEMPOTENCY`.

Nothing is cached, so `override_settings` works and a changed secret is used at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

SETTING = "WEBHOOK_IDEMPOTENCY"

#: Settings that exist once for the project; every other name is an option of a provider that may
#: also stand at the top as the default of all providers.
PROJECT_SETTINGS = frozenset(
    {
        "PROVIDERS",
        "QUEUE",
        "ENQUEUE_TIMEOUT",
        "TASKS_BACKEND",
        "TASKS_QUEUE",
        "STORE",
        "REDIS_URL",
    }
)


class Settings:
    """The project's settings; a property for each name in `PROJECT_SETTINGS`."""

    @property
    def all(self) -> Mapping[str, Any]:
        """The whole dictionary as the project wrote it."""
        value = getattr(settings, SETTING, {})
        if not isinstance(value, Mapping):
            raise ImproperlyConfigured(
                f"{SETTING} is a {type(value).__name__}. Make it a dictionary."
            )
        return value

    @property
    def providers(self) -> Mapping[str, Mapping[str, Any]]:
        """Provider slug to that provider's options."""
        value = self.all.get("PROVIDERS", {})
        if not isinstance(value, Mapping):
            raise ImproperlyConfigured(
                f"{SETTING}['PROVIDERS'] is a {type(value).__name__}. "
                "Make it a dictionary of provider slug to options."
            )
        return value

    @property
    def queue(self) -> str:
        """What runs queued events: "database", "celery", "tasks" or a dotted path."""
        return str(self.all.get("QUEUE", "database"))

    @property
    def enqueue_timeout(self) -> float:
        """Seconds that an acknowledgement waits at the most for a broker."""
        return float(self.all.get("ENQUEUE_TIMEOUT", 1.0))

    @property
    def tasks_backend(self) -> str:
        """The alias in Django's `TASKS` that the "tasks" queue uses."""
        return str(self.all.get("TASKS_BACKEND", "default"))

    @property
    def tasks_queue(self) -> str:
        """The queue of that backend."""
        return str(self.all.get("TASKS_QUEUE", "default"))

    @property
    def store(self) -> str:
        """Who keeps the leases of `atomic=False` work: "database", "redis" or a dotted path."""
        return str(self.all.get("STORE", "database"))

    @property
    def redis_url(self) -> str:
        """The Redis that the "redis" store uses."""
        return str(self.all.get("REDIS_URL", "redis://127.0.0.1:6379/0"))

    @property
    def shared_options(self) -> dict[str, Any]:
        """Provider options that stand at the top level, as defaults of every provider."""
        return {name: value for name, value in self.all.items() if name not in PROJECT_SETTINGS}

    def own_options(self, slug: str) -> Mapping[str, Any]:
        """What stands under one provider's slug. Raises ImproperlyConfigured."""
        own = self.providers.get(slug, {})
        if not isinstance(own, Mapping):
            raise ImproperlyConfigured(
                f"{SETTING}['PROVIDERS'][{slug!r}] is a {type(own).__name__}. "
                "Make it a dictionary of options, such as {'SECRETS': [...]}."
            )
        return own

    def provider_options(self, slug: str) -> dict[str, Any]:
        """Options of one provider: its own over the shared ones. Raises ImproperlyConfigured."""
        return {**self.shared_options, **self.own_options(slug)}


conf = Settings()


def made(setting: str, value: str, built_in: Mapping[str, str]) -> Any:
    """An instance of what a setting names: a class of our own, or one at a dotted path.

    Raises ImproperlyConfigured.
    """
    try:
        return import_string(built_in.get(value, value))()
    except ImportError as error:
        raise ImproperlyConfigured(
            f"{SETTING}['{setting}'] is {value!r}, which cannot be imported: {error}. "
            f"Use one of {', '.join(built_in)}, or the dotted path of a class."
        ) from error
