"""Checks of numbers that have to agree with each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from ..providers import Provider
from .targets import Target, readable_providers, targets

_NEVER = timedelta(0)


def check_retention(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """A key outlives every way in which its event can come again, replays of our own included."""
    configured = readable_providers()
    return [
        message
        for target in targets()
        if not target.view or target.provider.key not in configured  # views have none of their own
        for message in _retention_problems(target)
    ]


def _retention_problems(target: Target) -> Iterator[CheckMessage]:
    provider, where = target.provider, target.where("RETENTION")
    kept = provider.retention
    if kept < provider.minimum_retention:
        reasons = [
            (provider.retry_window, "retries by itself"),
            (provider.resend_window, "resends when a person asks for it"),
            (provider.retention_floor, "tells to keep ids"),
        ]
        why = ", ".join(f"{text} for {time}" for time, text in reasons if time > _NEVER)
        yield Error(
            f"{target} keeps keys for {kept}, but {why}. What comes again after its key is gone "
            "takes effect again.",
            hint=f"Set {where} to {provider.minimum_retention} or more.",
            id="webhooks.E018",
        )
    for name, time, of in (
        ("BODY_RETENTION", provider.body_retention, "bodies, which are there to be replayed,"),
        ("DELIVERY_RETENTION", provider.delivery_retention, "deliveries"),
    ):
        if _is_kept(provider, name) and kept < time:
            yield Warning(
                f"{target} is to keep {of} for {time}, but keys only for {kept}: both are gone "
                "when the key goes.",
                hint=f"Set {where} to {time} or more, or {target.where(name)} to {kept} or less.",
                id="webhooks.W019",
            )


def check_quarantine(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """What the settings say of the quarantine's time leaves the keys their window."""
    return [
        Warning(
            f"{target} is to keep refused deliveries for {target.provider.quarantine_retention}, "
            f"but they are kept for {target.provider.quarantine_time}: after that, the key of "
            "their event may be gone.",
            hint=f"Set {target.where('RETENTION')} to "
            f"{target.provider.window + target.provider.quarantine_retention} or more.",
            id="webhooks.W043",
        )
        for target in targets()
        if not target.view
        and "QUARANTINE_RETENTION" in target.options
        and target.provider.quarantine_time < target.provider.quarantine_retention
    ]


def _is_kept(provider: Provider, name: str) -> bool:
    if name == "BODY_RETENTION":
        return provider.store_body is True
    return provider.store_deliveries


def check_uploads(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """Django lets in what a provider sends.

    The default of MAX_BODY is our own guess and no fact of a provider, so it counts only where it
    was set by the provider's class or by the project.
    """
    limit: int | None = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    if limit is None:
        return []
    return [
        Warning(
            f"{target} may send bodies of {target.provider.max_body:,} bytes, and Django refuses "
            f"those over {limit:,}: they are answered 413.",
            hint=f"Set DATA_UPLOAD_MAX_MEMORY_SIZE = {target.provider.max_body}, or "
            f"{target.where('MAX_BODY')} to {limit} or less.",
            id="webhooks.W020",
        )
        for target in targets()
        if limit < target.provider.max_body and has_own_limit(target)
    ]


def has_own_limit(target: Target) -> bool:
    """Whether somebody chose how large a body may be."""
    declared = type(target.provider).max_body != Provider.max_body
    return declared or "MAX_BODY" in target.options
