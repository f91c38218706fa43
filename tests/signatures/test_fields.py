from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace

import pytest

from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.providers.stripe import Stripe
from django_webhook_idempotency.signatures import Secret
from django_webhook_idempotency.signatures.headers import MAX_CANDIDATES

from .factories import BODY, NOW, received

SECRET = Secret.parse("whsec_stripe")
GOOD = hmac.new(SECRET.value, f"{NOW}.".encode() + BODY, hashlib.sha256).hexdigest()
BAD = "0" * 64


def reason(header, *, secrets=(SECRET,)):
    message = received({"Stripe-Signature": header})
    return Stripe.scheme.verify(message, secrets, now=NOW, tolerance=300).reason


@pytest.mark.parametrize(
    "header",
    [
        f"t={NOW},v1={GOOD}",
        f"v1={GOOD},t={NOW}",
        f"t={NOW}, v1={GOOD}",
        f" t={NOW} , v1={GOOD} ",
        f"t={NOW},v1={BAD},v1={GOOD}",
        f"t={NOW},v1={GOOD},v1={BAD},v0={BAD}",
        f"t={NOW},v0={BAD},v1={GOOD}",
        f"t={NOW},v1=,v1={GOOD}",
        f"t={NOW},,v1={GOOD},",
        f"t={NOW},v1={GOOD},future,v9=é".replace("é", "e"),
        f"t={NOW},v1={GOOD},t={NOW},v1={GOOD}",
        f"t={NOW},v1={GOOD},t={NOW},v1={BAD}",
        f"t={NOW}" + f",v1={BAD}" * (MAX_CANDIDATES - 1) + f",v1={GOOD}",
    ],
)
def test_any_signature_of_our_version_is_accepted(header) -> None:
    """WB-067."""
    assert reason(header) is None


@pytest.mark.parametrize(
    "header",
    [
        "",
        "t",
        "=",
        ",,,",
        f"t={NOW}",
        f"v1={GOOD}",
        f"t={NOW};v1={GOOD}",
        f"t={NOW},v1",
        f"t={NOW},v1=",
        f"t={NOW},v1= ",
        f"t={NOW},v1 ={GOOD}",
        f"T={NOW},V1={GOOD}",
        f"t={NOW},v0={GOOD}",
        f"t={NOW},v1=={GOOD}",
        f"t={NOW},v1={GOOD}é",
        f"t={NOW}\0,v1={GOOD}",
        f"t=,v1={GOOD}",
        f"t= {NOW},v1={GOOD}",
        f"t={NOW}=,v1={GOOD}",
        f"t={NOW},t={NOW + 1},v1={GOOD}",
        f"t={NOW},t=,v1={GOOD}",
        f"t={NOW},t=0{NOW},v1={GOOD}",
        f"t={NOW}" + f",v1={GOOD}" * (MAX_CANDIDATES + 1),
        f"t={NOW},v1={GOOD}" + "," * 5000,
    ],
)
def test_a_header_that_cannot_be_read_is_malformed(header) -> None:
    assert reason(header) is RejectReason.MALFORMED


@pytest.mark.parametrize(
    "header",
    [
        f"t={NOW},v1={BAD}",
        f"t={NOW},v1={GOOD[:-1]}",
        f"t={NOW},v1={GOOD.upper()}",
        f"t={NOW},v1=zz",
        f"t={NOW},v1={BAD},v0={GOOD}",
        f"t=0{NOW},v1={GOOD}",
        f"t={NOW + 1},v1={GOOD}",
        f"t=0,v1={GOOD}",
    ],
)
def test_a_wrong_signature_is_a_mismatch(header) -> None:
    assert reason(header) is RejectReason.MISMATCH


def test_every_pair_of_secret_and_signature_is_compared(compared) -> None:
    old = Secret.parse("whsec_old")
    assert reason(f"t={NOW},v1={GOOD},v1={BAD},v1={BAD}", secrets=[SECRET, old]) is None
    assert len(compared) == 6


def test_the_version_can_be_another() -> None:
    scheme = replace(Stripe.scheme, header="X-Acme", field="v2")
    headers = scheme.sign(BODY, SECRET, timestamp=NOW)
    assert headers == {"X-Acme": f"t={NOW},v2={GOOD}"}
    assert scheme.verify(received(headers), [SECRET], now=NOW, tolerance=300).valid
    downgraded = {"X-Acme": f"t={NOW},v1={GOOD}"}
    verdict = scheme.verify(received(downgraded), [SECRET], now=NOW, tolerance=300)
    assert verdict.reason is RejectReason.MALFORMED
