"""The words that are stored, logged and shown: one enum for each closed set."""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.utils.translation import gettext_lazy as _


class EventStatus(models.TextChoices):
    """Where an event stands; `docs/concepts.md` draws the transitions."""

    #: Stored, waiting for its first run.
    PENDING = "pending", _("pending")
    #: Somebody holds the claim under a lease.
    PROCESSING = "processing", _("processing")
    #: Every handler has succeeded.
    PROCESSED = "processed", _("processed")
    #: No handler wanted it.
    IGNORED = "ignored", _("ignored")
    #: Older than the state already applied to the same object.
    SUPERSEDED = "superseded", _("superseded")
    #: The last run failed; it will be tried again.
    FAILED = "failed", _("failed")
    #: Its attempts are used up, or a handler rejected it for good.
    DEAD = "dead", _("dead letter")


#: A copy of an event in one of these is a duplicate, whatever happens.
FINISHED = frozenset({EventStatus.PROCESSED, EventStatus.IGNORED, EventStatus.SUPERSEDED})
#: A redelivery, the sweeper or a replay may run an event in one of these.
UNFINISHED = frozenset(EventStatus) - FINISHED


class Outcome(models.TextChoices):
    """What became of one delivery."""

    PROCESSED = "processed", _("processed")
    ACCEPTED = "accepted", _("accepted")
    DUPLICATE = "duplicate", _("duplicate")
    IN_PROGRESS = "in_progress", _("in progress")
    IGNORED = "ignored", _("ignored")
    SUPERSEDED = "superseded", _("superseded")
    HANDSHAKE = "handshake", _("handshake")
    REJECTED = "rejected", _("rejected")
    MALFORMED = "malformed", _("malformed")
    TOO_LARGE = "too_large", _("too large")
    FAILED = "failed", _("failed")


class Origin(models.TextChoices):
    """How a delivery came to us."""

    #: The provider sent it.
    REQUEST = "request", _("request")
    #: We asked the provider's API for it.
    RECOVERED = "recovered", _("recovered")
    #: It was refused, kept, and verified again.
    QUARANTINE = "quarantine", _("quarantine")


class RejectReason(StrEnum):
    """Why a signature was not accepted."""

    MISSING = "missing_signature"
    MALFORMED = "malformed_signature"
    STALE = "stale_timestamp"
    MISMATCH = "bad_signature"
