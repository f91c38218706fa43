"""The check of ordering keys (webhooks.E040)."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from django_webhook_idempotency import checks

pytestmark = pytest.mark.once


def found(**options: Any) -> list[str]:
    """What the check says of handlers of Stripe with these options."""
    entry = {"SECRETS": ["whsec_0123456789abcdef"], **options}
    with override_settings(WEBHOOK_IDEMPOTENCY={"PROVIDERS": {"stripe": entry}}):
        said = [
            each
            for each in run_checks(tags=[checks.TAG], databases=[])
            if each.id == "webhooks.E040"
        ]
    assert all(each.hint for each in said)
    return [each.msg for each in said]


def nothing(event: Any) -> None:
    raise AssertionError


def test_a_leased_one_in_the_request(handlers: Any) -> None:
    handlers.add(nothing, name="h", atomic=False, ordering_key="id")
    (said,) = found()
    assert said.startswith("Handler h has an ordering_key and atomic=False")
    assert found(PROCESSING="queued") == []


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("*", "a.b", True),
        ("a.b", "*", True),
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "a.b", True),
        ("a.b", "a.*", True),
        ("a.*", "a.b.*", True),
        ("a.b.*", "a.*", True),
        ("a.*", "ab.c", False),
        ("ab.*", "a.*", False),
        ("a.*", "a", False),
        ("a", "a.*", False),
    ],
)
def test_one_beside_a_leased_one(handlers: Any, one: str, other: str, meet: bool) -> None:
    handlers.add(nothing, pattern=one, name="h", ordering_key="id")
    handlers.add(nothing, pattern=other, name="leased", atomic=False)
    assert len(found()) == meet
    assert found(PROCESSING="queued") == []


def test_others_are_none_of_its_business(handlers: Any) -> None:
    handlers.add(nothing, "github", name="1", atomic=False, ordering_key="id")
    handlers.add(nothing, name="2", ordering_key="id")
    handlers.add(nothing, "github", name="3", atomic=False)
    assert found() == []
