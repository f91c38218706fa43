"""What is old: the times that the settings give each provider."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from .. import ledger
from ..conf import conf
from ..models import OrderingKey, QuarantinedDelivery, WebhookDelivery, WebhookEvent
from ..providers import BUILT_IN, Provider, configured_provider
from ..providers.keyed import Keyed

_RETENTIONS = frozenset(
    {"RETENTION", "BODY_RETENTION", "DELIVERY_RETENTION", "QUARANTINE_RETENTION"}
)


@dataclass(frozen=True)
class Policy:
    """What of one provider is old: whatever was received before these times.

    Events received since `reachable` may still be sent again: their keys have to stay.
    """

    provider: str
    keys: datetime
    bodies: datetime
    deliveries: datetime
    quarantine: datetime
    reachable: datetime

    @property
    def is_safe(self) -> bool:
        """Whether every key outlives the provider's window."""
        return self.keys <= self.reachable


def policy_of(slug: str, now: datetime, before: datetime | None = None) -> Policy:
    """The policy that the settings give a provider, or that `before` gives everything of it.

    A provider that is configured no longer has the defaults. Raises ImproperlyConfigured.
    """
    if slug in conf.providers or slug in BUILT_IN:
        provider = configured_provider(slug, default=Keyed)
    else:
        shared = conf.shared_options
        provider = Provider(slug, {name: shared[name] for name in _RETENTIONS & shared.keys()})
    return Policy(
        provider=slug,
        keys=before or now - provider.retention,
        bodies=before or now - provider.body_retention,
        deliveries=before or now - provider.delivery_retention,
        quarantine=before or now - provider.quarantine_time,
        reachable=now - provider.minimum_retention,
    )


def known_providers() -> list[str]:
    """Every provider that is configured or has rows, in order."""
    using = ledger.alias()
    stored = {
        *_slugs(WebhookEvent.objects.using(using)),
        *_slugs(WebhookDelivery.objects.using(using)),
        *_slugs(OrderingKey.objects.using(using)),
        *_slugs(QuarantinedDelivery.objects.using(using)),
    }
    return sorted(stored | set(conf.providers))


def _slugs(rows: QuerySet[Any]) -> Iterator[str]:
    """The providers of a table: one step through the index for each, whatever the table's size."""
    ordered = rows.order_by("provider").values_list("provider", flat=True)
    slug = ordered.first()
    while slug is not None:
        yield slug
        slug = ordered.filter(provider__gt=slug).first()
