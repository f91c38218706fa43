"""Checks of the settings' shape, names and types: one message for each mistake."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured

from ..conf import PROJECT_SETTINGS, SETTING, conf
from ..providers import BUILT_IN, Provider, UnknownProvider, provider_class
from .mounted import MountedView, mounted_views
from .targets import Fault, Target, class_of, readable_providers, shared_options, targets


def check_settings(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """The settings are dictionaries where they should be, of providers that exist."""
    try:
        providers = conf.providers
    except ImproperlyConfigured as error:
        return [_shapeless(str(error))]
    readable = readable_providers()
    messages: list[CheckMessage] = [
        _shapeless(f"{SETTING}['PROVIDERS'][{slug!r}] should be a dictionary, under a text.")
        for slug in providers
        if slug not in readable
    ]
    for slug in readable:
        try:
            class_of(slug)
        except UnknownProvider as error:
            messages.append(Error(str(error), hint=_provider_hint(slug), id="webhooks.E002"))
    for view in mounted_views():
        if view.provider and view.provider not in readable:
            messages += _unknown_to(view)
    return messages


def _unknown_to(view: MountedView) -> list[CheckMessage]:
    try:
        provider_class(view.provider, view.default)
    except UnknownProvider as error:
        text = f"{view.name}: {error}"
        return [Error(text, hint=_provider_hint(view.provider), id="webhooks.E002")]
    return []


def _shapeless(message: str) -> CheckMessage:
    example = f"{SETTING} = {{'PROVIDERS': {{'stripe': {{'SECRETS': [...]}}}}}}"
    return Error(message, hint=f"Write {example}.", id="webhooks.E001")


def _provider_hint(slug: str) -> str:
    return (
        f"{_guess(slug, BUILT_IN)}For a provider of your own, name its class in 'CLASS': a dotted "
        "path, as you would import it. For @idempotent_webhook(key=...), give the entry its "
        "retention and no SECRETS."
    )


def check_options(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """Every option exists and has a value that fits."""
    found = targets()
    if not found:
        return [
            _unknown(option.where, option.name, Provider.options)
            for option in shared_options()
            if not isinstance(option.name, str) or option.name.lower() not in Provider.options
        ]
    unknown: dict[str, list[tuple[Fault, Target]]] = {}
    messages: dict[str, CheckMessage] = {}
    for target in found:
        for fault in target.faults:
            if fault.error:
                text = f"{fault.option.where} should be {fault.error}."
                hint = "Correct it: until then every delivery is answered 503."
                messages[text] = Error(text, hint=hint, id="webhooks.E004")
            else:
                unknown.setdefault(fault.option.where, []).append((fault, target))
    tops = {option.where for option in shared_options()}
    for where, faults in unknown.items():
        fault, target = faults[0]
        only = ", ".join(dict.fromkeys(repr(each.slug) for each, _ in faults))
        nobodys = where in tops and len(faults) == len(found)
        of = "" if nobodys else f" of {only}"
        messages[where] = _unknown(where, fault.option.name, target.provider.options, of)
    return messages.values()


def _unknown(where: str, name: Any, known: Iterable[str], of: str = "") -> CheckMessage:
    if name in PROJECT_SETTINGS:
        hint = f"It is a setting of the whole project: write {SETTING}[{name!r}]."
        return Error(f"{where} is not an option{of}.", hint=hint, id="webhooks.E003")
    if name in BUILT_IN:
        hint = f"It is a provider: write {SETTING}['PROVIDERS'][{name!r}]."
        return Error(f"{where} is not an option{of}.", hint=hint, id="webhooks.E003")
    names = sorted({*map(str.upper, known), *PROJECT_SETTINGS})
    return Error(
        f"{where} is not an option{of}.",
        hint=f"{_guess(str(name).upper(), names)}Known are {', '.join(names)}. What only some "
        "providers know belongs into their own entries.",
        id="webhooks.E003",
    )


def check_own_problems(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """What each provider class itself finds wrong with its options."""
    return [
        Error(f"{target}: {problem}", hint="Correct the provider's options.", id="webhooks.E029")
        for target in targets()
        for problem in target.contradictions
    ]


def _guess(name: str, names: Iterable[str]) -> str:
    close = get_close_matches(name, list(names), 1)
    return f"Did you mean {close[0]!r}? " if close else ""
