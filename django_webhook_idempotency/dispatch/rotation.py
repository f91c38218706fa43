"""Which secrets of a provider are in use, and which can go."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from .. import ledger
from ..exceptions import UnknownScope
from ..models import SecretUse
from ..providers import Provider
from ..providers.secrets import Entry

#: An old secret that was not used for so long can go, if another was.
QUIET = timedelta(days=7)
#: Secrets that are used and stand nowhere in the settings: the newest so many are told of.
OTHERS = 10


@dataclass(frozen=True)
class SecretState:
    """One secret by its fingerprint, and when deliveries that it verified came.

    `until` is when it ends by itself. One that is not `configured` is known from a view, from
    another scope, or was in the settings once.
    """

    fingerprint: str
    configured: bool = True
    live: bool = True
    until: datetime | None = None
    first_used_at: datetime | None = None
    last_used_at: datetime | None = None
    can_go: bool = False

    @property
    def remark(self) -> str:
        """What there is to say of it besides its last use; empty if nothing."""
        if not self.configured:
            return "not in the settings"
        if self.until is not None:
            return f"{'ends by itself' if self.live else 'ended'} at {self.until.isoformat()}"
        if self.can_go:
            return (
                f"the old secret {self.fingerprint} has not been used for {QUIET.days} days: "
                "it can go"
            )
        return ""

    def as_dict(self) -> dict[str, Any]:
        """The same for a machine."""
        return {
            "fingerprint": self.fingerprint,
            "configured": self.configured,
            "live": self.live,
            "until": _iso(self.until),
            "first_used_at": _iso(self.first_used_at),
            "last_used_at": _iso(self.last_used_at),
            "can_go": self.can_go,
            "remark": self.remark,
        }


def secret_states(provider: Provider, now: datetime) -> list[SecretState]:
    """Every secret of a provider's settings, then others that were used last.

    What a function knows only for some scope is among the others. One that was never used may be
    the next one, so it is never said that it can go. Raises the database's own error.
    """
    entries = _entries(provider)
    uses = SecretUse.objects.using(ledger.alias()).filter(provider=provider.key)
    fingerprints = {entry.secret.fingerprint for entry in entries}
    known = {use.fingerprint: use for use in uses.filter(fingerprint__in=fingerprints)}
    recent = {
        fingerprint
        for fingerprint, use in known.items()
        if use.last_used_at >= now - QUIET and _is_live(entries, fingerprint)
    }
    states = [_state(entry, known.get(entry.secret.fingerprint), recent) for entry in entries]
    others = uses.exclude(fingerprint__in={*fingerprints, ""}).order_by("-last_used_at")
    return states + [
        SecretState(
            use.fingerprint,
            configured=False,
            live=False,
            first_used_at=use.first_used_at,
            last_used_at=use.last_used_at,
        )
        for use in others[:OTHERS]
    ]


def _entries(provider: Provider) -> list[Entry]:
    """What the settings hold, as far as it can be told without a scope."""
    try:
        return provider.secret_entries() if provider.is_signed else []
    except (ImproperlyConfigured, UnknownScope):
        return []  # the system checks say what is wrong with it


def _is_live(entries: list[Entry], fingerprint: str) -> bool:
    return any(entry.is_live for entry in entries if entry.secret.fingerprint == fingerprint)


def _state(entry: Entry, use: SecretUse | None, recent: set[str]) -> SecretState:
    fingerprint = entry.secret.fingerprint
    until = entry.until
    if until is not None and timezone.is_naive(timezone.now()):
        until = timezone.make_naive(until)
    return SecretState(
        fingerprint,
        live=entry.is_live,
        until=until,
        first_used_at=use.first_used_at if use else None,
        last_used_at=use.last_used_at if use else None,
        can_go=use is not None
        and entry.until is None
        and bool(recent)
        and fingerprint not in recent,
    )


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
