"""What a source of recovery is: it knows what a provider sent, and how to get it once more."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ..exceptions import WebhookError
from ..providers import Identity, Provider


class SourceError(WebhookError):
    """The provider's API cannot be asked now: it is away, or something in between is."""


class SourceRefused(SourceError):
    """The provider's API does not let us in, or knows nothing of what the settings name."""


class NotSentAgain(SourceError):
    """The provider's API does not have this one event sent again; it may well another."""


#: Seconds of the longest pause that is believed: a time that is too far off is none.
LONGEST_PAUSE = 86400.0


class RateLimited(SourceError):
    """The provider's API asks for a pause of `retry_after` seconds, at most a day."""

    def __init__(self, retry_after: float) -> None:
        pause = float(retry_after) if math.isfinite(retry_after) else LONGEST_PAUSE
        self.retry_after = min(max(pause, 0.0), LONGEST_PAUSE)
        super().__init__(f"The API asks for a pause of {self.retry_after:.0f} seconds.")


@dataclass(frozen=True, slots=True)
class Sent:
    """One event that the provider says it sent, with all of its deliveries.

    `accepted` says whether any of them was answered 2xx, `leaves_at` when the provider can no
    longer send or give it; both are aware, whatever USE_TZ says. `handle` is whatever `redeliver`
    needs. `body` is the event itself, from sources that give it out; `scope` the one in our URL.
    `also` is what its deliveries may have been identified by instead.
    """

    identity: Identity
    sent_at: datetime
    accepted: bool
    scope: str = ""
    leaves_at: datetime | None = None
    handle: Any = None
    body: bytes | None = field(default=None, repr=False)
    content_type: str = "application/json"
    also: Identity | None = None


class Source(ABC):
    """One hook, endpoint or account of a provider, asked over the provider's API.

    A subclass says what was sent, and either gives the body with it or has it sent again. Every
    method may raise SourceError; `RateLimited` makes the run wait, or end and go on later.
    """

    #: How long the provider remembers what it sent.
    horizon: timedelta
    #: How long after it was sent an event may still be on its way, or be retried at once.
    grace: timedelta = timedelta(minutes=5)

    def __init__(self, provider: Provider, key: str) -> None:
        """`key` tells the sources of one provider apart, and never holds a secret."""
        self.provider = provider
        self.key = key

    @classmethod
    @abstractmethod
    def configured(cls, provider: Provider, options: Mapping[str, Any]) -> Iterable[Source]:
        """The sources that a provider's RECOVERY describes. Raises ImproperlyConfigured."""

    def now(self) -> datetime:
        """The time by the provider's clock, as far as its answers have told; else by ours."""
        return datetime.now(UTC)

    @abstractmethod
    def sent(self, since: datetime) -> Iterator[Sent]:
        """What was sent since then, an aware time; each event once, in any order.

        After a pause that it asked for it is called again, and may go on where it was.
        """

    def redeliver(self, sent: Sent) -> None:
        """Have an event sent again. Only for what came without a body."""
        raise SourceRefused(f"{type(self).__name__} cannot have anything sent again.")
