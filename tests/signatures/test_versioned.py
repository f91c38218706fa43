from __future__ import annotations

import hashlib
import hmac

import pytest

from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.providers.slack import Slack
from django_webhook_idempotency.signatures import Hmac, Secret

from .factories import BODY, NOW, received

SECRET = Secret.parse("8f742231b10e8888abcd99yyyzzz85a5")
GOOD = hmac.new(SECRET.value, f"v0:{NOW}:".encode() + BODY, hashlib.sha256).hexdigest()


def reason(signature, timestamp=str(NOW)):
    message = received({"X-Slack-Signature": signature, "X-Slack-Request-Timestamp": timestamp})
    return Slack.scheme.verify(message, [SECRET], now=NOW, tolerance=300).reason


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        (f"v0={GOOD}", None),
        (f"v1={GOOD}", RejectReason.MALFORMED),
        (f"V0={GOOD}", RejectReason.MALFORMED),
        (GOOD, RejectReason.MALFORMED),
        ("v0=", RejectReason.MALFORMED),
        (f"v0={GOOD},v0={GOOD}", RejectReason.MALFORMED),
        (f"v0={GOOD} ", RejectReason.MALFORMED),
        (f"v0={'0' * 64}", RejectReason.MISMATCH),
        (f"v0={GOOD[:-1]}", RejectReason.MISMATCH),
    ],
)
def test_the_signature_is_read_strictly(signature, expected) -> None:
    assert reason(signature) is expected


@pytest.mark.parametrize("timestamp", ["now", f"{NOW},{NOW}", f" {NOW}", f"{NOW}.5", "-1"])
def test_the_time_is_read_strictly(timestamp) -> None:
    assert reason(f"v0={GOOD}", timestamp) is RejectReason.MALFORMED


def test_the_version_is_signed() -> None:
    scheme = Hmac(
        "X-Acme-Signature", "v2:{timestamp}:{body}", prefix="v2=", time_header="X-Acme-Time"
    )
    headers = scheme.sign(BODY, SECRET, timestamp=NOW)
    expected = hmac.new(SECRET.value, f"v2:{NOW}:".encode() + BODY, hashlib.sha256).hexdigest()
    assert headers == {"X-Acme-Time": str(NOW), "X-Acme-Signature": f"v2={expected}"}
    assert scheme.verify(received(headers), [SECRET], now=NOW, tolerance=300).valid
