"""Keep a delivery that failed verification, so that it can be verified again; within bounds."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network

from django.db import Error as AnyDatabaseError
from django.utils.crypto import salted_hmac

from .. import ledger
from ..enums import RejectReason
from ..models import QuarantinedDelivery, displayable
from ..providers import Incoming, Provider
from ..signatures.headers import MAX_HEADER_LENGTH
from .deliveries import ROW_PATIENCE, Throttle

logger = logging.getLogger("django_webhook_idempotency")

#: What may hold once a secret is mended. A missing or malformed signature never will, and a time
#: that was outside of the tolerance when it came stays so.
VERIFIABLE = frozenset({RejectReason.MISMATCH})
#: Seconds for which a full quarantine is not looked at again.
FULL_FOR = 60.0
#: The part of an address that counts as one network.
NETWORK_V4, NETWORK_V6 = 24, 48


@dataclass
class Refused:
    """A delivery whose signature did not hold.

    `scope` is the one in the URL, `address` the peer's, `view` as in `QuarantinedDelivery`.
    """

    provider: Provider
    reason: RejectReason
    incoming: Incoming = field(repr=False)
    scope: str
    view: str
    address: str
    content_type: str
    received_at: datetime

    @property
    def sender(self) -> str:
        """A digest of the network that it came from."""
        return salted_hmac(__name__, network_of(self.address), algorithm="sha256").hexdigest()[:16]

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that it is verified and identified by, those that it had."""
        found = self.incoming.headers
        return {name: found[name] for name in self.provider.signed_headers if name in found}

    @property
    def fits(self) -> bool:
        """Whether it can be stored as it came: what is cut would never verify."""
        texts = [self.scope, self.view, self.content_type]
        return (
            len(self.incoming.body) <= self.provider.quarantine_max_body
            and all(displayable(text) == text for text in texts)
            and all(displayable(text, MAX_HEADER_LENGTH) == text for text in self.headers.values())
        )

    def row(self) -> QuarantinedDelivery:
        """What is stored of it."""
        return QuarantinedDelivery(
            provider=self.provider.key,
            scope=self.scope,
            view=self.view,
            reason=self.reason,
            sender=self.sender,
            received_at=self.received_at,
            content_type=self.content_type,
            body=self.incoming.body,
            signed_headers=dict(self.headers),
        )


def network_of(address: str) -> str:
    """The network of an IP address; empty for a peer that has none, such as a UNIX socket's."""
    try:
        ip = ip_address(address)
    except ValueError:
        return ""
    ip = getattr(ip, "ipv4_mapped", None) or ip
    length = NETWORK_V4 if ip.version == 4 else NETWORK_V6
    return str(ip_network((ip, length), strict=False))


class FullBuckets:
    """Which buckets were full a moment ago: a flood does not even cost a look at the table."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[tuple[str, ...], float] = {}
        self._missed: Counter[str] = Counter()
        self._lines = Throttle(1, 1 / FULL_FOR)

    def has(self, *bucket: str) -> bool:
        """Whether a bucket was full a moment ago."""
        return self._until.get(bucket, 0.0) > time.monotonic()

    def add(self, *bucket: str) -> None:
        """Note that a bucket is full."""
        now = time.monotonic()
        with self._lock:
            self._until = {key: until for key, until in self._until.items() if until > now}
            self._until[bucket] = now + FULL_FOR

    def miss(self, provider: str, why: str) -> None:
        """Count a delivery that is not kept; a line a minute says how many there were."""
        with self._lock:
            self._missed[provider] += 1
        if self._lines.allows(provider):
            with self._lock:
                missed = self._missed.pop(provider, 0)
            logger.warning(
                "webhook quarantine: provider=%s not_kept=%s, the last since it %s",
                provider,
                missed,
                why,
            )

    def forget(self) -> None:
        """Start again, as a new process does."""
        with self._lock:
            self._until, self._missed = {}, Counter()
        self._lines.forget()


full_buckets = FullBuckets()


def may_be_kept(provider: Provider, reason: RejectReason | None) -> bool:
    """Whether a refused delivery is one for the quarantine at all. Asks no database."""
    return (
        reason in VERIFIABLE
        and provider.quarantine_limit > 0
        and provider.quarantine_time > timedelta(0)
        and bool(provider.signed_headers)
    )


def keep(refused: Refused) -> None:
    """Store a refused delivery if there is room for it. A database that fails is logged.

    Nothing is pushed out: what is there stays until it is verified or too old, whoever comes after
    it. The rows of one provider and reason are at most QUARANTINE_LIMIT, and those of one network
    half of that, give or take what arrives at the same moment.
    """
    provider = refused.provider.key
    if not refused.fits:
        full_buckets.miss(provider, "is too large")
        return
    try:
        with ledger.bounded_lock_wait(ledger.alias(), ROW_PATIENCE):
            kept = _has_room(refused) and refused.row()
            if kept:
                kept.save(force_insert=True, using=ledger.alias())
            else:
                full_buckets.miss(provider, "is full")
    except AnyDatabaseError as error:
        logger.warning("webhook not quarantined: %s", type(error).__name__)


def _has_room(refused: Refused) -> bool:
    """Whether neither the whole bucket nor its sender's half is full: a look at the index each."""
    bucket, sender = (refused.provider.key, str(refused.reason)), refused.sender
    limit = refused.provider.quarantine_limit
    if full_buckets.has(*bucket) or full_buckets.has(*bucket, sender):
        return False
    rows = QuarantinedDelivery.objects.using(ledger.alias()).filter(
        provider=bucket[0], reason=bucket[1]
    )
    for key, found, most in (
        (bucket, rows, limit),
        ((*bucket, sender), rows.filter(sender=sender), (limit + 1) // 2),
    ):
        if found.order_by().values_list("pk", flat=True)[most - 1 : most]:
            full_buckets.add(*key)
            return False
    return True
