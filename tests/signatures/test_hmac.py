from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.providers.github import GitHub
from django_webhook_idempotency.signatures import Hmac, Secret

from .factories import BODY, received

SECRET = Secret.parse("It's a Secret to Everybody")
HEX = hmac.new(SECRET.value, BODY, hashlib.sha256).hexdigest()


def verify(scheme, headers):
    return scheme.verify(received(headers), [SECRET], now=0, tolerance=0)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (f"sha256={HEX}", None),
        (HEX, RejectReason.MALFORMED),
        (f"sha1={HEX}", RejectReason.MALFORMED),
        (f"SHA256={HEX}", RejectReason.MALFORMED),
        (f" sha256={HEX}", RejectReason.MALFORMED),
        (f"sha256={HEX} ", RejectReason.MALFORMED),
        (f"sha256= {HEX}", RejectReason.MALFORMED),
        (f"sha256={HEX},sha256={HEX}", RejectReason.MALFORMED),
        ("sha256=", RejectReason.MALFORMED),
        ("sha256", RejectReason.MALFORMED),
        ("=", RejectReason.MALFORMED),
        (f"sha256={HEX[:-1]}", RejectReason.MISMATCH),
        (f"sha256={HEX}0", RejectReason.MISMATCH),
        (f"sha256={HEX.upper()}", RejectReason.MISMATCH),
        (f"sha256={'0' * 64}", RejectReason.MISMATCH),
        ("sha256=zz", RejectReason.MISMATCH),
    ],
)
def test_the_header_is_read_strictly(header, reason) -> None:
    assert verify(GitHub.scheme, {"X-Hub-Signature-256": header}).reason is reason


def test_sha1_is_accepted_only_by_a_scheme_made_for_it() -> None:
    sha1 = GitHub.sha1_scheme
    headers = sha1.sign(BODY, SECRET)
    assert headers == {
        "X-Hub-Signature": "sha1=" + hmac.new(SECRET.value, BODY, "sha1").hexdigest()
    }
    assert verify(sha1, headers).valid
    assert verify(GitHub.scheme, headers).reason is RejectReason.MISSING
    smuggled = {"X-Hub-Signature-256": headers["X-Hub-Signature"]}
    assert verify(GitHub.scheme, smuggled).reason is RejectReason.MALFORMED


def test_no_time_is_signed_and_none_is_judged() -> None:
    headers = GitHub.scheme.sign(BODY, SECRET, timestamp=1, message_id="ignored")
    assert headers == {"X-Hub-Signature-256": f"sha256={HEX}"}
    assert verify(GitHub.scheme, headers).timestamp is None


def test_other_digests_and_base64_serve_other_providers() -> None:
    scheme = Hmac("X-Acme-Hmac", digest="sha512", encoding="base64")
    expected = base64.b64encode(hmac.digest(SECRET.value, BODY, "sha512")).decode()
    assert scheme.sign(BODY, SECRET) == {"X-Acme-Hmac": expected}
    assert verify(scheme, {"X-Acme-Hmac": expected}).valid
    in_hex = hmac.digest(SECRET.value, BODY, "sha512").hex()
    assert verify(scheme, {"X-Acme-Hmac": in_hex}).reason is RejectReason.MISMATCH
