"""What goes of the deliveries that failed verification."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.db.models import QuerySet

from ..models import QuarantinedDelivery
from .walks import Kind, Walk


class Quarantine(Walk):
    """Deliveries that failed verification and will not be verified any more."""

    kind = Kind.QUARANTINE

    @property
    def rows(self) -> QuerySet[Any]:
        """The provider's quarantined deliveries."""
        return QuarantinedDelivery.objects.using(self.using).filter(provider=self.policy.provider)

    @property
    def old(self) -> QuerySet[Any]:
        """Those received before the cutoff."""
        return self.rows.filter(received_at__lt=self.cutoff)

    def count(self) -> Counter[Kind]:
        """How many would go now."""
        return Counter({self.kind: self.old.count()})

    def purge(self, part: QuerySet[Any]) -> Counter[Kind]:
        """Delete the range."""
        return Counter({self.kind: part._raw_delete(self.using)})
