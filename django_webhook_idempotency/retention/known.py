"""Purge every provider as the settings say, with nobody watching."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from .policies import Policy, known_providers, policy_of
from .purge import Purge

logger = logging.getLogger("django_webhook_idempotency")


def purge_known(max_seconds: float) -> Purge:
    """Purge every provider that is configured or has rows.

    One whose settings would delete a key that a delivery can still ask for is left alone, and the
    log says so. Raises OutOfTime when something is left after `max_seconds`.
    """
    purge = Purge(list(_safe_policies()), max_seconds=max_seconds)
    for _ in purge.steps():
        pass
    return purge


def _safe_policies() -> Iterator[Policy]:
    now = timezone.now()
    for slug in known_providers():
        try:
            policy = policy_of(slug, now)
        except ImproperlyConfigured as error:
            logger.error("webhook purge leaves %s alone: %s", slug, error)
            continue
        if policy.is_safe:
            yield policy
        else:
            logger.error(
                "webhook purge leaves %s alone: its keys would go while it can still send their "
                "events again. Raise its RETENTION.",
                slug,
            )
