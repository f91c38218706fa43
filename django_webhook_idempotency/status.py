"""How the queue is doing: what waits, how long, and what moves, for each provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Count, Max, Min
from django.utils import timezone

from . import ledger
from .conf import conf
from .dispatch.rotation import SecretState, secret_states
from .dispatch.silence import Silence, last_heard, silent_sources
from .enums import FINISHED, UNFINISHED, EventStatus
from .models import WebhookEvent
from .providers import configured_provider
from .providers.keyed import Keyed

#: The newest events among which finished ones are counted: the rate costs the same at any size.
LOOK = 50_000


@dataclass
class Standing:
    """One provider's unfinished events, and what came and went lately.

    `waiting_seconds` is how long the oldest unfinished event that is not dead has been here,
    `late_seconds` how long the event has been due that should have run first; None without one.
    """

    pending: int = 0
    processing: int = 0
    failed: int = 0
    dead: int = 0
    waiting_seconds: float | None = None
    late_seconds: float | None = None
    received_per_minute: float = 0.0
    finished_per_minute: float = 0.0

    @property
    def backlog(self) -> int:
        """Events that are still to be finished; dead ones are not."""
        return self.pending + self.processing + self.failed


@dataclass
class Limits:
    """What is still healthy; None for no limit. Times are in seconds."""

    late: float | None = None
    backlog: int | None = None
    dead: int | None = None


@dataclass
class Contact:
    """What was heard of a configured provider, and which secrets verified it.

    `heard_at` is when its last verified delivery came, to the minute.
    """

    heard_at: datetime | None = None
    silence: Silence | None = None
    secrets: list[SecretState] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The same for a machine."""
        return {
            "heard_at": self.heard_at and self.heard_at.isoformat(),
            "silent_since": self.silence and self.silence.since.isoformat(),
            "secrets": [secret.as_dict() for secret in self.secrets],
        }


@dataclass
class Status:
    """The standing of every provider that is configured or has something unfinished."""

    checked_at: datetime
    window: timedelta
    providers: Mapping[str, Standing]
    contacts: Mapping[str, Contact] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def total(self) -> Standing:
        """All providers together."""
        return _sum(self.providers.values())

    def judge(self, limits: Limits) -> None:
        """Note what is beyond the limits: lateness for each provider, numbers for each too.

        A source that has been silent for too long is a problem as well.
        """
        for contact in self.contacts.values():
            if contact.silence is not None:
                self.problems.append(str(contact.silence))
        for slug, standing in self.providers.items():
            for name, value, limit, unit in (
                ("an event is late by", standing.late_seconds, limits.late, " s"),
                ("backlog is", standing.backlog, limits.backlog, ""),
                ("dead letters are", standing.dead, limits.dead, ""),
            ):
                if limit is not None and value is not None and value > limit:
                    shown = f"{round(value, 1):g}{unit}, more than {limit:g}{unit}"
                    self.problems.append(f"{slug}: {name} {shown}")

    def as_dict(self) -> dict[str, Any]:
        """The same for a machine."""
        return {
            "checked_at": self.checked_at.isoformat(),
            "window_seconds": self.window.total_seconds(),
            "healthy": not self.problems,
            "problems": self.problems,
            "total": {"backlog": self.total.backlog, **asdict(self.total)},
            "providers": {
                slug: {
                    "backlog": standing.backlog,
                    **asdict(standing),
                    **self.contacts.get(slug, Contact()).as_dict(),
                }
                for slug, standing in self.providers.items()
            },
        }


def status(window: timedelta, providers: Iterable[str] = ()) -> Status:
    """Look at the tables: at what is unfinished, and at what came within the window.

    Raises the database's own error. `providers` limits it to some.
    """
    now = timezone.now()
    found = {slug: Standing() for slug in conf.providers}
    _count_unfinished(found, now)
    _count_late(found, now)
    _count_rates(found, now, window)
    chosen = set(providers)
    kept = {slug: found[slug] for slug in sorted(found) if not chosen or slug in chosen}
    return Status(now, window, kept, _contacts(kept, now))


def _contacts(slugs: Iterable[str], now: datetime) -> dict[str, Contact]:
    """What was heard of those that are configured."""
    silences = {silence.provider: silence for silence in silent_sources(now)}
    found = {}
    for slug in set(slugs) & set(conf.providers):
        contact = found[slug] = Contact(last_heard(slug), silences.get(slug))
        try:
            contact.secrets = secret_states(configured_provider(slug, default=Keyed), now)
        except ImproperlyConfigured:
            continue  # the system checks say what is wrong with it
    return dict(sorted(found.items()))


def _count_unfinished(found: dict[str, Standing], now: datetime) -> None:
    rows = (
        WebhookEvent.objects.using(ledger.alias())
        .filter(status__in=UNFINISHED)
        .values_list("provider", "status")
        .annotate(Count("pk"), Min("received_at"))
        .order_by()
    )
    for slug, name, count, oldest in rows:
        standing = found.setdefault(slug, Standing())
        setattr(standing, name, count)
        if name != EventStatus.DEAD:
            age = max((now - oldest).total_seconds(), 0.0)
            standing.waiting_seconds = max(standing.waiting_seconds or 0.0, age)


def _count_late(found: dict[str, Standing], now: datetime) -> None:
    due = WebhookEvent.objects.using(ledger.alias()).due(now)
    for slug, first in due.values_list("lane").annotate(Min("next_attempt_at")).order_by():
        found.setdefault(slug, Standing()).late_seconds = (now - first).total_seconds()


def _count_rates(found: dict[str, Standing], now: datetime, window: timedelta) -> None:
    """Finished ones are looked for among the newest events, so it may be more of them."""
    minutes, since = window.total_seconds() / 60, now - window
    events = WebhookEvent.objects.using(ledger.alias())
    received = events.filter(received_at__gte=since).values_list("provider").annotate(Count("pk"))
    for slug, count in received.order_by():
        found.setdefault(slug, Standing()).received_per_minute = round(count / minutes, 2)
    newest = events.aggregate(newest=Max("pk"))["newest"] or 0
    lately = events.filter(pk__gt=newest - LOOK, processed_at__gte=since, status__in=FINISHED)
    for slug, count in lately.values_list("provider").annotate(Count("pk")).order_by():
        found.setdefault(slug, Standing()).finished_per_minute = round(count / minutes, 2)


def _sum(standings: Iterable[Standing]) -> Standing:
    total = Standing()
    for each in standings:
        for name in ("pending", "processing", "failed", "dead"):
            setattr(total, name, getattr(total, name) + getattr(each, name))
        for name in ("waiting_seconds", "late_seconds"):
            ages = [age for age in (getattr(total, name), getattr(each, name)) if age is not None]
            setattr(total, name, max(ages, default=None))
        for name in ("received_per_minute", "finished_per_minute"):
            setattr(total, name, round(getattr(total, name) + getattr(each, name), 2))
    return total
