from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.signatures import Secret, StandardWebhooks
from django_webhook_idempotency.signatures.headers import MAX_CANDIDATES

from .factories import BODY, NOW, received, whsec

KEY = bytes(range(32))
SECRET = whsec(KEY)
ENCODED = base64.b64encode(KEY).decode()
GOOD = base64.b64encode(
    hmac.new(KEY, f"msg_1.{NOW}.".encode() + BODY, hashlib.sha256).digest()
).decode()
BAD = base64.b64encode(bytes(32)).decode()


def headers(prefix="webhook", **parts):
    parts = {"id": "msg_1", "timestamp": str(NOW), "signature": f"v1,{GOOD}"} | parts
    return {f"{prefix}-{part}": value for part, value in parts.items()}


def reason(headers, *, secrets=(SECRET,), scheme=None):
    scheme = scheme or StandardWebhooks()
    return scheme.verify(received(headers), secrets, now=NOW, tolerance=300).reason


@pytest.mark.parametrize(
    "signature",
    [
        f"v1,{GOOD}",
        f"v1,{GOOD.rstrip('=')}",
        f"v1,{BAD} v1,{GOOD}",
        f"v1,{GOOD} v1,{BAD}",
        f"v1a,AAAA v2,{BAD} v1,{GOOD} junk",
        f"  v1,{GOOD}  ",
        f"v1 v1, v1,!! v1,{GOOD}",
        f"v1,{BAD}, v1,{GOOD}",
        " ".join([f"v1,{BAD}"] * (MAX_CANDIDATES - 1) + [f"v1,{GOOD}"]),
    ],
)
def test_any_signature_of_a_known_version_is_accepted(signature) -> None:
    """WB-067: unknown versions and what cannot be decoded are skipped."""
    assert reason(headers(signature=signature)) is None


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        (GOOD, RejectReason.MALFORMED),
        ("v1", RejectReason.MALFORMED),
        ("v1,", RejectReason.MALFORMED),
        ("v1,!!", RejectReason.MALFORMED),
        (f"v1={GOOD}", RejectReason.MALFORMED),
        (f"V1,{GOOD}", RejectReason.MALFORMED),
        (f"v2,{GOOD}", RejectReason.MALFORMED),
        (f"v1,{GOOD},v1,{GOOD}", RejectReason.MALFORMED),
        (" ".join([f"v1,{GOOD}"] * (MAX_CANDIDATES + 1)), RejectReason.MALFORMED),
        (" ".join([f"v1,{GOOD}"] * MAX_CANDIDATES + ["v1a,AAAA"]), RejectReason.MALFORMED),
        (f"v1,{BAD}", RejectReason.MISMATCH),
        (f"v1,{GOOD[:-4]}", RejectReason.MISMATCH),
        (f"v1a,{GOOD}", RejectReason.MISMATCH),
    ],
)
def test_any_other_signature_is_rejected(signature, expected) -> None:
    assert reason(headers(signature=signature)) is expected


def test_the_id_is_signed() -> None:
    assert reason(headers(id="msg_2")) is RejectReason.MISMATCH
    assert reason(headers(id="msg_1,msg_1")) is RejectReason.MISMATCH


@pytest.mark.parametrize(
    "secret",
    [
        f"whsec_{ENCODED}",
        f"whsec_{ENCODED.rstrip('=')}",
        ENCODED,
        ENCODED.rstrip("="),
        f" whsec_{ENCODED}\n",
    ],
)
def test_prefix_and_padding_of_the_secret_may_be_missing(secret) -> None:
    """WB-066."""
    assert reason(headers(), secrets=[Secret.parse(secret)]) is None


@pytest.mark.parametrize(
    "secret",
    [
        f"v1,whsec_{ENCODED}",
        f"sk_{ENCODED}",
        f"whsec_{ENCODED}!",
        f"whsec_{ENCODED}\n{ENCODED}",
        "whsec_AAAA",
        "A" * 44,
        f"whpk_{ENCODED[:-4]}",
        f"whsk_{ENCODED[:-4]}",
        "é",
    ],
)
def test_a_malformed_secret_matches_nothing_and_crashes_nothing(secret) -> None:
    """WB-065, WB-066: an empty key included."""
    empty_key = hmac.new(b"", f"msg_1.{NOW}.".encode() + BODY, hashlib.sha256).digest()
    forged = headers(signature=f"v1,{base64.b64encode(empty_key).decode()}")
    assert reason(forged, secrets=[Secret.parse(secret)]) is RejectReason.MISMATCH
    assert reason(headers(), secrets=[Secret.parse(secret)]) is RejectReason.MISMATCH
    assert reason(headers(), secrets=[Secret.parse(secret), SECRET]) is None


@pytest.mark.parametrize("prefix", ["webhook", "svix"])
def test_either_family_of_headers_is_read(prefix) -> None:
    assert reason(headers(prefix)) is None


def test_both_families_may_agree() -> None:
    both = headers("webhook") | headers("svix")
    assert reason(both) is None
    assert StandardWebhooks().message_id(received(both).headers) == "msg_1"


@pytest.mark.parametrize("prefix", ["webhook", "svix"])
@pytest.mark.parametrize("part", ["id", "timestamp", "signature"])
@pytest.mark.parametrize("value", ["2", ""])
def test_families_that_contradict_are_malformed(prefix, part, value) -> None:
    """What is signed must be what the rest of the app reads as the event id."""
    both = headers("webhook") | headers("svix") | {f"{prefix}-{part}": value}
    assert reason(both) is RejectReason.MALFORMED
    one = headers("svix" if prefix == "webhook" else "webhook") | {f"{prefix}-{part}": value}
    assert reason(one) is RejectReason.MALFORMED


def test_a_family_that_is_not_asked_for_is_not_read() -> None:
    only_webhook = StandardWebhooks(("webhook",))
    assert reason(headers("svix"), scheme=only_webhook) is RejectReason.MISSING
    assert reason(headers() | {"svix-id": "other"}, scheme=only_webhook) is None


def test_the_message_id_is_empty_where_none_can_be_read() -> None:
    scheme = StandardWebhooks()
    assert scheme.message_id({"svix-id": "msg_1"}) == "msg_1"
    assert scheme.message_id({}) == ""
    assert scheme.message_id({"webhook-id": "a", "svix-id": "b"}) == ""


def test_signing_uses_the_first_family() -> None:
    assert StandardWebhooks().sign(BODY, SECRET, timestamp=NOW, message_id="msg_1") == headers()
    signed = StandardWebhooks(("svix",)).sign(BODY, SECRET, timestamp=NOW, message_id="msg_1")
    assert signed == headers("svix")


def test_signing_needs_an_id_and_a_key() -> None:
    with pytest.raises(ValueError, match="message id"):
        StandardWebhooks().sign(BODY, SECRET, timestamp=NOW)
    with pytest.raises(ValueError, match="not base64"):
        StandardWebhooks().sign(BODY, Secret.parse("whsec_!"), timestamp=NOW, message_id="m")


def test_every_pair_of_secret_and_signature_is_compared(compared) -> None:
    listed = headers(signature=f"v1,{GOOD} v1,{BAD} v1,{BAD}")
    assert reason(listed, secrets=[SECRET, whsec(b"o" * 24)]) is None
    assert len(compared) == 6
