"""What is too old to be verified goes with the purge."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from django_webhook_idempotency.models import QuarantinedDelivery
from django_webhook_idempotency.retention import Kind, Purge, known_providers, policy_of

pytestmark = pytest.mark.django_db


def keep(days: float, provider: str = "stripe") -> QuarantinedDelivery:
    return QuarantinedDelivery.objects.create(
        provider=provider,
        reason="bad_signature",
        body=b"{}",
        received_at=timezone.now() - timedelta(days=days),
    )


def purge(*slugs: str, **options: Any) -> int:
    policies = [policy_of(slug, timezone.now()) for slug in slugs or known_providers()]
    run = Purge(policies, batch_size=10, pause=0, **options)
    for _ in run.steps():
        pass
    return sum(counts[Kind.QUARANTINE] for counts in run.removed.values())


def test_it_goes_after_its_retention_and_no_earlier() -> None:
    keep(7.1)
    young = keep(6.9)
    assert purge() == 1
    assert QuarantinedDelivery.objects.get() == young


def test_each_provider_has_its_own(settings: Any) -> None:
    own = {"stripe": {"QUARANTINE_RETENTION": timedelta(days=1)}, "github": {}}
    settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": own}
    keep(2)
    left = keep(2, "github")
    assert purge() == 1
    assert QuarantinedDelivery.objects.get() == left


def test_a_short_retention_of_the_keys_shortens_it(settings: Any) -> None:
    """Stripe can send for 30 days, so three are left in which the key is there for sure."""
    own = {"stripe": {"RETENTION": timedelta(days=33)}}
    settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": own}
    keep(3.1)
    left = keep(2.9)
    assert purge() == 1
    assert QuarantinedDelivery.objects.get() == left


def test_a_provider_that_left_nothing_else_is_known() -> None:
    keep(8, "gone")
    assert "gone" in known_providers()
    assert purge() == 1


def test_the_command_counts_and_clears_it() -> None:
    keep(8)
    keep(1)
    for arguments, left in ((["--dry-run"], 2), ([], 1)):
        out = StringIO()
        call_command("purge_webhooks", *arguments, stdout=out, no_color=True)
        lines = [line.split() for line in out.getvalue().splitlines()]
        assert lines[0][-1] == "quarantine" and lines[-1][-1] == "1"
        assert QuarantinedDelivery.objects.count() == left


def test_a_row_costs_a_constant(django_assert_max_num_queries: Any) -> None:
    """Three ranges: no more statements for each than for the first, and nothing counted."""
    for _ in range(30):
        keep(8)
    with django_assert_max_num_queries(5 * 3 + 19) as captured:
        assert purge("stripe") == 30
    assert not [query for query in captured.captured_queries if "COUNT(" in query["sql"].upper()]
    bodies = [
        query["sql"]
        for query in captured.captured_queries
        if query["sql"].startswith("SELECT") and "signed_headers" in query["sql"]
    ]
    assert bodies == []
