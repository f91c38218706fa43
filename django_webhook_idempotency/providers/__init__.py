"""Providers by slug; a provider's module is imported when it is first used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ..conf import SETTING, conf
from .base import Provider
from .identity import Answer, Identity, Redelivery
from .incoming import Incoming

__all__ = [
    "BUILT_IN",
    "Answer",
    "Identity",
    "Incoming",
    "Provider",
    "Redelivery",
    "UnknownProvider",
    "configured_provider",
    "provider_class",
]

#: Slug to the dotted path of the class.
BUILT_IN: Mapping[str, str] = {
    slug: f"{__name__}.{slug}.{name}"
    for slug, name in {
        "github": "GitHub",
        "sangho": "Sangho",
        "slack": "Slack",
        "standard_webhooks": "StandardWebhooks",
        "stripe": "Stripe",
    }.items()
}


class UnknownProvider(ImproperlyConfigured):
    """No provider of that name is configured or shipped."""


def provider_class(slug: str, default: type[Provider] | None = None) -> type[Provider]:
    """The class behind a slug: the one that the settings name, else the one that is shipped.

    Raises UnknownProvider if there is neither and no `default`.
    """
    path = conf.own_options(slug).get("CLASS") or BUILT_IN.get(slug)
    if path is None and default is not None:
        return default
    if path is None:
        raise UnknownProvider(
            f"Provider {slug!r} is not known. Use one of {', '.join(sorted(BUILT_IN))}, or name "
            f"your own in {SETTING}['PROVIDERS'][{slug!r}]['CLASS']."
        )
    try:
        found = import_string(path) if isinstance(path, str) else path
    except ImportError as error:
        raise UnknownProvider(
            f"Provider {slug!r} cannot be imported from {path!r}: {error}."
        ) from error
    if not (isinstance(found, type) and issubclass(found, Provider)):
        raise UnknownProvider(f"{path!r} is not a subclass of {Provider.__qualname__}.")
    return found


def configured_provider(
    slug: str,
    overrides: Mapping[str, Any] | None = None,
    default: type[Provider] | None = None,
) -> Provider:
    """A provider with its options in place; `overrides` win over the settings.

    Raises UnknownProvider, and ImproperlyConfigured for an option that does not exist or fit.
    """
    return provider_class(slug, default)(slug, {**conf.provider_options(slug), **(overrides or {})})
