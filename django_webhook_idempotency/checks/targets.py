"""The places that receive webhooks, and each of their options with the place it was set at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..conf import SETTING, conf
from ..providers import BUILT_IN, Provider, provider_class
from ..providers.keyed import Keyed
from ..providers.options import STRUCTURAL
from .mounted import mounted_views


@dataclass(frozen=True)
class Option:
    """One option as it was set, and where."""

    where: str
    name: Any
    value: Any


@dataclass(frozen=True)
class Fault:
    """An option that cannot be used; `error` is what its value should be, empty if unknown."""

    option: Option
    slug: str
    error: str = ""


@dataclass(frozen=True)
class Target:
    """A provider with those of its options that can be used, in the settings or on one view."""

    provider: Provider
    options: Mapping[Any, Option]
    faults: tuple[Fault, ...]
    contradictions: tuple[str, ...]
    view: str = ""

    def where(self, name: str) -> str:
        """Where an option is set, or should be."""
        if name in self.options:
            return self.options[name].where
        return _where(self.provider.key, name)

    def __str__(self) -> str:
        text = f"Provider {self.provider.key!r}"
        return f"{text} on {self.view}" if self.view else text


def readable_providers() -> dict[str, Mapping[str, Any]]:
    """The entries of PROVIDERS that are of the right shape."""
    try:
        providers: Mapping[Any, Any] = conf.providers
    except ImproperlyConfigured:
        return {}
    return {
        slug: own
        for slug, own in providers.items()
        if isinstance(slug, str) and isinstance(own, Mapping)
    }


def shared_options() -> list[Option]:
    """The options at the top of the settings."""
    try:
        shared = conf.shared_options
    except ImproperlyConfigured:
        return []
    return [Option(f"{SETTING}[{name!r}]", name, value) for name, value in shared.items()]


def class_of(slug: str) -> type[Provider]:
    """The class of an entry of PROVIDERS. Raises UnknownProvider.

    An entry of a name that nobody knows may hold the retention of `@idempotent_webhook(key=...)`.
    One with secrets, without any option, or almost of a known name is a mistake.
    """
    own = readable_providers().get(slug, {})
    keyed = own and "SECRETS" not in own and not get_close_matches(slug, BUILT_IN)
    return provider_class(slug, Keyed if keyed else None)


def targets() -> list[Target]:
    """Every provider of the settings, and every view that is mounted for one."""
    slugs = readable_providers()
    found = [_target(slug, class_of, {}) for slug in slugs]
    for view in mounted_views():
        if view.provider and (view.overrides or view.provider not in slugs):
            more = {
                name: Option(f"{name.lower()} of {view.name}", name, value)
                for name, value in view.overrides.items()
            }
            find = partial(provider_class, default=view.default)
            found.append(_target(view.provider, find, more, view.name))
    return [target for target in found if target is not None]


def _target(
    slug: str,
    find: Callable[[str], type[Provider]],
    more: Mapping[Any, Option],
    view: str = "",
) -> Target | None:
    try:
        chosen = find(slug)
        provider = chosen(slug)
    except ImproperlyConfigured:
        return None
    options = {option.name: option for option in shared_options()}
    for name, value in readable_providers().get(slug, {}).items():
        if name not in STRUCTURAL:
            options[name] = Option(_where(slug, name), name, value)
    options |= more
    faults = tuple(filter(None, (_fault(provider, option) for option in options.values())))
    faulty = {fault.option.name for fault in faults}
    usable = {name: option.value for name, option in options.items() if name not in faulty}
    try:
        provider = chosen(slug, usable)
        contradictions = tuple(provider.problems())
    except ImproperlyConfigured as error:
        contradictions = (str(error),)
    return Target(provider, options, faults, contradictions, view)


def _fault(provider: Provider, option: Option) -> Fault | None:
    known = isinstance(option.name, str) and option.name.isupper()
    validate = provider.options.get(option.name.lower()) if known else None
    if validate is None:
        return Fault(option, provider.key)
    try:
        validate(option.value)
    except ValueError as error:
        return Fault(option, provider.key, str(error))
    return None


def _where(slug: str, name: Any) -> str:
    return f"{SETTING}['PROVIDERS'][{slug!r}][{name!r}]"
