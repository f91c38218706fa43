from __future__ import annotations

import hashlib
import hmac

import pytest

from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.signatures import Secret
from django_webhook_idempotency.signatures.matching import (
    decode_base64,
    encode,
    find_secret,
    judge,
    mac,
    matches_any,
)

SECRET = Secret(b"key")
NOW = 1_700_000_000


@pytest.mark.parametrize("digest", ["sha1", "sha256", "sha512"])
def test_the_parts_are_signed_as_if_joined(digest) -> None:
    expected = hmac.new(b"key", b"one.two", getattr(hashlib, digest)).digest()
    assert mac(b"key", [b"one.", b"two"], digest) == expected


def test_signatures_are_encoded_as_headers_carry_them() -> None:
    assert encode(b"\xab\xcd", "hex") == b"abcd"
    assert encode(b"\xab\xcd", "base64") == b"q80="


@pytest.mark.parametrize(
    ("text", "value"), [("YQ==", b"a"), ("YQ", b"a"), ("YQ=", b"a"), ("+/+/", b"\xfb\xff\xbf")]
)
def test_base64_is_decoded_with_or_without_padding(text, value) -> None:
    assert decode_base64(text) == value


@pytest.mark.parametrize("text", ["", "a", "YQ===", "Y Q=", "YQ==\n", "-_-_", "é", "===="])
def test_what_is_not_base64_raises_a_value_error(text) -> None:
    with pytest.raises(ValueError):
        decode_base64(text)


def test_every_candidate_is_compared(compared) -> None:
    assert matches_any(b"a", [b"a", b"b", b"c"])
    assert compared == [(b"a", b"a"), (b"a", b"b"), (b"a", b"c")]
    assert not matches_any(b"a", [])


def test_every_secret_is_tried_and_the_first_match_wins() -> None:
    secrets = [Secret(b"a"), Secret(b"b"), Secret(b"c")]
    tried = []

    def matches(secret):
        tried.append(secret)
        return secret.value in b"bc"

    assert find_secret(secrets, matches) == Secret(b"b")
    assert tried == secrets
    assert find_secret([], matches) is None


@pytest.mark.parametrize("timestamp", [NOW - 300, NOW, NOW + 300])
@pytest.mark.parametrize("fraction", [0, 0.999])
def test_the_tolerance_includes_its_ends(timestamp, fraction) -> None:
    verdict = judge(SECRET, timestamp, now=NOW + fraction, tolerance=300)
    assert verdict.valid
    assert verdict.secret == SECRET
    assert verdict.timestamp == timestamp


@pytest.mark.parametrize("timestamp", [0, NOW - 301, NOW + 301, 10**15 - 1])
@pytest.mark.parametrize("fraction", [0, 0.999])
def test_outside_the_tolerance_is_stale_on_either_side(timestamp, fraction) -> None:
    """WB-068: an operator can tell a clock or a late retry from a wrong secret."""
    verdict = judge(SECRET, timestamp, now=NOW + fraction, tolerance=300)
    assert verdict.reason is RejectReason.STALE
    assert not verdict.valid
    assert verdict.secret is None
    assert verdict.timestamp == timestamp


@pytest.mark.parametrize("timestamp", [0, NOW - 301, NOW, 10**15 - 1])
def test_a_wrong_signature_is_a_mismatch_whatever_its_time(timestamp) -> None:
    verdict = judge(None, timestamp, now=NOW, tolerance=300)
    assert verdict.reason is RejectReason.MISMATCH
    assert not verdict.valid


def test_no_tolerance_means_no_limit() -> None:
    """WB-068: where retries keep the first timestamp, the id is the guard."""
    assert judge(SECRET, 0, now=NOW, tolerance=None).valid
    assert judge(SECRET, 10**15 - 1, now=NOW, tolerance=None).valid


def test_a_tolerance_of_zero_is_the_current_second_only() -> None:
    assert judge(SECRET, NOW, now=NOW + 0.5, tolerance=0).valid
    assert judge(SECRET, NOW - 1, now=NOW, tolerance=0).reason is RejectReason.STALE
    assert judge(SECRET, NOW + 1, now=NOW + 0.5, tolerance=0).reason is RejectReason.STALE
