from __future__ import annotations

from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.signatures import Secret, Verdict


def test_a_verdict_is_valid_only_with_the_secret_that_matched() -> None:
    assert Verdict(secret=Secret(b"key")).valid
    assert not Verdict().valid
    assert not Verdict(RejectReason.STALE).valid
    assert not Verdict(RejectReason.STALE, Secret(b"key")).valid
