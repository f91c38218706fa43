from __future__ import annotations

import base64
import sys

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

import django_webhook_idempotency.signatures as signatures
from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.exceptions import MissingExtra
from django_webhook_idempotency.signatures import Secret, StandardWebhooks, ed25519

from .factories import BODY, NOW, received, whsec

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
SEED = KEY.private_bytes_raw()
PUBLIC = KEY.public_key().public_bytes_raw()


def secret(prefix: str, raw: bytes) -> Secret:
    return Secret.parse(prefix + base64.b64encode(raw).decode())


def signed(**parts: str) -> dict[str, str]:
    signature = KEY.sign(f"msg_1.{NOW}.".encode() + BODY)
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(NOW),
        "webhook-signature": f"v1a,{base64.b64encode(signature).decode()}",
    } | parts


def verify(headers, secrets, *, body=BODY, now=NOW):
    return StandardWebhooks().verify(received(headers, body), secrets, now=now, tolerance=300)


def test_a_public_key_verifies() -> None:
    public = secret("whpk_", PUBLIC)
    verdict = verify(signed(), [public])
    assert verdict.valid
    assert verdict.secret is public


@pytest.mark.parametrize("raw", [SEED, SEED + PUBLIC])
def test_a_private_key_signs_and_verifies_as_its_public_half(raw) -> None:
    private = secret("whsk_", raw)
    headers = StandardWebhooks().sign(BODY, private, timestamp=NOW, message_id="msg_1")
    assert headers == signed()
    assert verify(headers, [secret("whpk_", PUBLIC)]).valid
    assert verify(headers, [private]).secret is private


def test_a_public_key_cannot_sign() -> None:
    with pytest.raises(ValueError, match="cannot sign"):
        StandardWebhooks().sign(BODY, secret("whpk_", PUBLIC), timestamp=NOW, message_id="m")


def test_what_is_wrong_is_a_mismatch() -> None:
    public = secret("whpk_", PUBLIC)
    other = secret("whpk_", Ed25519PrivateKey.generate().public_key().public_bytes_raw())
    assert verify(signed(), [other]).reason is RejectReason.MISMATCH
    assert verify(signed(), [public], body=BODY + b" ").reason is RejectReason.MISMATCH
    assert verify(signed(**{"webhook-id": "msg_2"}), [public]).reason is RejectReason.MISMATCH
    stale = verify(signed(), [public], now=NOW + 301)
    assert stale.reason is RejectReason.STALE


@pytest.mark.parametrize("length", [1, 32, 63, 65, 512])
def test_a_signature_of_another_length_is_a_mismatch(length) -> None:
    headers = signed(**{"webhook-signature": f"v1a,{base64.b64encode(bytes(length)).decode()}"})
    assert verify(headers, [secret("whpk_", PUBLIC)]).reason is RejectReason.MISMATCH


@pytest.mark.parametrize("raw", [bytes(32), b"\xff" * 32, b"\x02" + bytes(31)])
def test_a_nonsense_key_matches_nothing(raw) -> None:
    assert verify(signed(), [secret("whpk_", raw)]).reason is RejectReason.MISMATCH


def test_an_hmac_under_the_public_key_is_no_signature() -> None:
    """A public key is public: nobody may use it as a shared secret."""
    forged = StandardWebhooks().sign(BODY, whsec(PUBLIC), timestamp=NOW, message_id="msg_1")
    public = secret("whpk_", PUBLIC)
    assert verify(forged, [public]).reason is RejectReason.MISMATCH
    renamed = forged | {"webhook-signature": forged["webhook-signature"].replace("v1,", "v1a,")}
    assert verify(renamed, [public]).reason is RejectReason.MISMATCH
    relabelled = signed() | {
        "webhook-signature": signed()["webhook-signature"].replace("v1a", "v1")
    }
    assert verify(relabelled, [public]).reason is RejectReason.MISMATCH


def test_both_kinds_of_signature_stand_side_by_side() -> None:
    """WB-067: a sender that moves from v1 to v1a."""
    shared, public = whsec(b"s" * 24), secret("whpk_", PUBLIC)
    hmac_part = StandardWebhooks().sign(BODY, shared, timestamp=NOW, message_id="msg_1")
    both = f"{hmac_part['webhook-signature']} {signed()['webhook-signature']}"
    headers = signed(**{"webhook-signature": both})
    assert verify(headers, [shared]).secret is shared
    assert verify(headers, [public]).secret is public


def test_every_signature_is_checked_even_after_one_has_held(monkeypatch) -> None:
    checked = []

    class CountedKey:
        def verify(self, signature: bytes, content: bytes) -> None:
            checked.append(signature)
            if signature != b"good":
                raise InvalidSignature

    monkeypatch.setattr(
        Ed25519PublicKey, "from_public_bytes", lambda raw: CountedKey(), raising=True
    )
    assert ed25519.PublicKey(PUBLIC).matches([BODY], [b"bad", b"good", b"bad"])
    assert checked == [b"bad", b"good", b"bad"]


def test_the_key_stays_out_of_repr() -> None:
    assert repr(ed25519.PrivateKey(SEED)) == "PrivateKey()"


@pytest.fixture
def without_cryptography(monkeypatch):
    for name in list(sys.modules):
        if name.partition(".")[0] == "cryptography":
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, ed25519.__name__)
    monkeypatch.delattr(signatures, "ed25519")


@pytest.mark.usefixtures("without_cryptography")
def test_without_cryptography_the_extra_is_named() -> None:
    public = secret("whpk_", PUBLIC)
    with pytest.raises(MissingExtra, match=r"django-webhook-idempotency\[crypto\]"):
        verify(signed(), [public])
    assert "[crypto]" in (StandardWebhooks().check_secret(public) or "")


@pytest.mark.usefixtures("without_cryptography")
def test_without_cryptography_shared_secrets_work() -> None:
    shared = whsec(b"s" * 24)
    headers = StandardWebhooks().sign(BODY, shared, timestamp=NOW, message_id="msg_1")
    both = headers | {
        "webhook-signature": f"{signed()['webhook-signature']} {headers['webhook-signature']}"
    }
    assert verify(both, [shared]).valid
