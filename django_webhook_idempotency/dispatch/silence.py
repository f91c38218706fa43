"""Sources that should have been heard of, and were not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.core.exceptions import ImproperlyConfigured
from django.db import Error as AnyDatabaseError
from django.db.models import Q
from django.utils import timezone

from .. import ledger
from ..conf import conf
from ..models import ExpectedSource, SecretUse
from ..providers import Provider, configured_provider
from ..providers.keyed import Keyed
from ..signals import webhook_source_silent
from .deliveries import Throttle

logger = logging.getLogger("django_webhook_idempotency")

#: Seconds between two looks of one process: times of use are noted once a minute.
LOOK_EVERY = 60.0

looks = Throttle(1, 1 / LOOK_EVERY)


@dataclass(frozen=True)
class Silence:
    """A source that has been silent for longer than it should be.

    `since` is when its last verified delivery came, or when we began to expect one if it was
    never `heard`.
    """

    provider: str
    since: datetime
    expected_every: timedelta
    heard: bool = True

    def __str__(self) -> str:
        what = "silent since" if self.heard else "never heard of, expected since"
        return f"{self.provider}: {what} {self.since.isoformat()}, not for {self.expected_every}"


def last_heard(provider: str) -> datetime | None:
    """When a provider's last verified delivery came, to the minute; None if none ever did."""
    uses = SecretUse.objects.using(ledger.alias()).filter(provider=provider)
    return uses.order_by("-last_used_at").values_list("last_used_at", flat=True).first()


def silent_sources(now: datetime) -> list[Silence]:
    """The sources that have been silent for longer than their EXPECT_EVERY, by slug.

    The first look for a source that never delivered is remembered. Raises the database's own error.
    """
    found = []
    for provider in _expected():
        heard_at = last_heard(provider.key)
        since = heard_at or _row(provider.key, now).expected_since
        every = provider.expect_every
        if every is not None and now - since > every:
            found.append(Silence(provider.key, since, every, heard=heard_at is not None))
    return found


def tell_of_silence(now: datetime) -> int:
    """Send `webhook_source_silent` for each silence that nobody was told of; return how many.

    Of several processes one sends it. Raises the database's own error.
    """
    told = 0
    for silence in silent_sources(now):
        _row(silence.provider, now)
        untold = Q(told_of__isnull=True) | Q(told_of__lt=silence.since)
        rows = ExpectedSource.objects.using(ledger.alias()).filter(provider=silence.provider)
        if rows.filter(untold).update(told_of=silence.since):
            logger.error("webhook source is silent: %s", silence)
            webhook_source_silent.send_robust(
                sender=ExpectedSource,
                provider=silence.provider,
                since=silence.since,
                expected_every=silence.expected_every,
                heard=silence.heard,
            )
            told += 1
    return told


def watch() -> None:
    """Tell of silent sources, at most once a minute in a process; never raises."""
    if not looks.allows("silence"):
        return
    try:
        tell_of_silence(timezone.now())
    except (AnyDatabaseError, ImproperlyConfigured) as error:
        logger.warning("webhook look for silent sources failed: %s", type(error).__name__)


def _expected() -> Iterator[Provider]:
    """The configured providers that should be heard of every so often."""
    for slug in sorted(conf.providers):
        try:
            provider = configured_provider(slug, default=Keyed)
        except ImproperlyConfigured:
            continue  # the system checks say what is wrong with it
        if provider.expect_every is not None:
            yield provider


def _row(provider: str, now: datetime) -> ExpectedSource:
    """What is remembered of an expected source."""
    rows = ExpectedSource.objects.using(ledger.alias())
    return rows.get_or_create(provider=provider, defaults={"expected_since": now})[0]
