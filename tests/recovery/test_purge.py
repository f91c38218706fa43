"""The purge forgets missing events that nobody can get any more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_webhook_idempotency.models import MissingEvent
from django_webhook_idempotency.retention import Purge, policy_of

pytestmark = pytest.mark.django_db(transaction=True)


def missing(key: str, **values: Any) -> MissingEvent:
    values = {"sent_at": timezone.now(), "provider": "github", "source": "github app", **values}
    return MissingEvent.objects.create(dedupe_key=key, event_id=key, **values)


def test_the_purge_forgets_what_nobody_can_get_any_more():
    now = timezone.now()
    missing("gone", leaves_at=now - timedelta(minutes=1))
    missing("gone with nobody knowing when", sent_at=now - timedelta(days=91))
    missing("here", leaves_at=now + timedelta(minutes=1), sent_at=now - timedelta(days=91))
    missing("here too")
    missing("another's", provider="stripe", leaves_at=now - timedelta(minutes=1))
    purge = Purge([policy_of("github", now)])
    list(purge.steps())
    left = MissingEvent.objects.order_by("pk").values_list("dedupe_key", flat=True)
    assert list(left) == ["here", "here too", "another's"]
