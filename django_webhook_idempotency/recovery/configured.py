"""Which sources a provider has, and on which terms its events are recovered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ..conf import SETTING, conf
from ..dispatch.resolving import view_at
from ..exceptions import MissingExtra
from ..providers import Provider, configured_provider, options
from ..providers.keyed import Keyed
from .base import Source

#: Slug of a provider's class to the dotted path of its source.
BUILT_IN: Mapping[str, str] = {
    slug: f"{__package__}.{slug}.{name}"
    for slug, name in {
        "github": "GitHubSource",
        "sangho": "SanghoSource",
        "stripe": "StripeSource",
    }.items()
}
#: What the column of a source's name has room for.
MAX_NAME = 255
#: Entries of RECOVERY that are not the source's, and what checks their values.
_TERMS: Mapping[str, options.Validator] = {
    "ATTEMPTS": options.positive,
    "ALARM": options.duration,
}


@dataclass(frozen=True)
class Terms:
    """How often one event is asked for, and how long before it is too late the alarm is raised.

    `view` is the path of the view class whose `handle` runs what a source gives out; empty for
    registered handlers.
    """

    attempts: int = 5
    alarm: timedelta = timedelta(hours=12)
    view: str = ""


@dataclass(frozen=True)
class Recovery:
    """How the events of one provider are recovered."""

    provider: Provider
    terms: Terms
    sources: Sequence[Source]


def name_of(source: Source) -> str:
    """The name of a source among those of all providers."""
    return f"{source.provider.key} {source.key}".strip()


def recoveries(slugs: Iterable[str] = (), *, named: bool = True) -> list[Recovery]:
    """How these providers are recovered, or all that have a RECOVERY.

    Raises ImproperlyConfigured, for one that was `named` and has none too.
    """
    slugs, found = list(slugs), []
    named = named and bool(slugs)
    for slug in dict.fromkeys(slugs or conf.providers):
        if not named and conf.provider_options(slug).get("RECOVERY") is None:
            continue
        provider = configured_provider(slug, default=Keyed)
        if provider.recovery is not None:
            found.append(recovery_of(provider))
        else:
            raise ImproperlyConfigured(
                f"Provider {slug!r} has no RECOVERY. Set {where(provider)}: a dictionary."
            )
    return found


def recovery_of(provider: Provider) -> Recovery:
    """How a provider is recovered that has a RECOVERY. Raises ImproperlyConfigured."""
    entries = dict(provider.recovery or {})
    own = {name: entries.pop(name, None) for name in ("SOURCE", "VIEW", *_TERMS)}
    terms = Terms(view=_view(provider, own["VIEW"]), **_numbers(provider, own))
    source_class = _source_class(provider, own["SOURCE"])
    sources = _sources(provider, source_class, entries)
    names = [name_of(source) for source in sources]
    if not names:
        raise ImproperlyConfigured(f"{where(provider)} names nothing to ask for events.")
    for name in names:
        if names.count(name) > 1:
            raise ImproperlyConfigured(f"{where(provider)} names the source {name!r} twice.")
        if len(name) > MAX_NAME:
            raise ImproperlyConfigured(
                f"{where(provider)} has a source whose name is longer than {MAX_NAME} characters."
            )
    return Recovery(provider, terms, sources)


def _sources(
    provider: Provider, source_class: type[Source], entries: Mapping[str, Any]
) -> list[Source]:
    try:
        return list(source_class.configured(provider, entries))
    except ImproperlyConfigured:
        raise
    except Exception as error:
        # A source's own mistake. Its text may quote a key.
        raise ImproperlyConfigured(
            f"{where(provider)} cannot be read: {source_class.__name__} raised "
            f"{type(error).__name__}."
        ) from None


def _source_class(provider: Provider, chosen: Any) -> type[Source]:
    path = chosen or BUILT_IN.get(type(provider).slug)
    setting = f"{where(provider)}['SOURCE']"
    if path is None:
        raise ImproperlyConfigured(
            f"Nothing is built in that asks provider {provider.key!r}. Name a Source of your own "
            f"in {setting}."
        )
    try:
        found = import_string(path) if isinstance(path, str) else path
    except MissingExtra:
        raise
    except ImportError as error:
        raise ImproperlyConfigured(f"{setting} {path!r} cannot be imported: {error}.") from error
    if not (isinstance(found, type) and issubclass(found, Source)):
        raise ImproperlyConfigured(f"{setting} {path!r} is no subclass of {Source.__qualname__}.")
    return found


def _view(provider: Provider, path: Any) -> str:
    if path is None:
        return ""
    if not isinstance(path, str):
        raise ImproperlyConfigured(
            f"{where(provider)}['VIEW'] should be the dotted path of a view class."
        )
    try:
        view_at(path)
    except ImproperlyConfigured as error:
        raise ImproperlyConfigured(f"{where(provider)}['VIEW']: {error}") from error
    return path


def _numbers(provider: Provider, own: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, validate in _TERMS.items():
        if own[name] is None:
            continue
        try:
            found[name.lower()] = validate(own[name])
        except ValueError as error:
            raise ImproperlyConfigured(f"{where(provider)}[{name!r}] should be {error}.") from None
    return found


def where(provider: Provider) -> str:
    """Where the RECOVERY of a provider stands in the settings."""
    return f"{SETTING}['PROVIDERS'][{provider.key!r}]['RECOVERY']"
