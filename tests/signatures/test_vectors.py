"""The vectors of shared/providers/vectors.json that concern these providers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.providers.github import GitHub
from django_webhook_idempotency.providers.sangho import Sangho
from django_webhook_idempotency.providers.slack import Slack
from django_webhook_idempotency.providers.stripe import Stripe
from django_webhook_idempotency.signatures import (
    Scheme,
    Secret,
    StandardWebhooks,
)

from .factories import received

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_bytes())["vectors"]
BY_ID = {vector["id"]: vector for vector in VECTORS}

SCHEMES: dict[str, Scheme] = {
    "sangho": Sangho.scheme,
    "stripe": Stripe.scheme,
    "slack": Slack.scheme,
    "github": GitHub.scheme,
    "standard_webhooks": StandardWebhooks(),
    "resend": StandardWebhooks(("svix", "webhook")),
}
SIGNATURE_HEADER = {
    "sangho": "Sangho-Signature",
    "stripe": "Stripe-Signature",
    "github": "X-Hub-Signature-256",
}
# What the official clients call the way they refuse.
REASONS = {"malformed": RejectReason.MALFORMED, "mismatch": RejectReason.MISMATCH}


PRINTED = [
    vector["id"]
    for vector in VECTORS
    if vector["kind"] != "behaviour_of_official_client" and "secret_key" not in vector["inputs"]
]
SINGLE = [name for name in PRINTED if "rotation" not in name]
ROTATED = [name for name in PRINTED if "rotation" in name]
TOLERANCE = [name for name in BY_ID if "-tolerance-" in name]
REFUSED = [name for name in BY_ID if "header" in BY_ID[name]["inputs"]]


def body_of(vector) -> bytes:
    body: str = vector["inputs"]["body"]
    if body.startswith("same as "):
        body = BY_ID[body.removeprefix("same as ")]["inputs"]["body"]
    return body.encode()


def timestamp_of(vector) -> int:
    return int(vector["inputs"].get("timestamp", 0))


def headers_of(vector) -> dict[str, str]:
    """Return the headers that a vector prints."""
    return {name: value for name, value in vector["output"].items() if "-" in name}


def verify(vector, headers, secrets, *, now=None):
    return SCHEMES[vector["provider"]].verify(
        received(headers, body_of(vector)),
        [Secret.parse(secret) for secret in secrets],
        now=timestamp_of(vector) + 10 if now is None else now,
        tolerance=300,
    )


def sign(vector):
    return SCHEMES[vector["provider"]].sign(
        body_of(vector),
        Secret.parse(vector["inputs"]["secret"]),
        timestamp=timestamp_of(vector),
        message_id=vector["inputs"].get("msg_id", ""),
    )


def test_every_vector_is_used() -> None:
    others = {"standardwebhooks-v1a-ed25519", "standardwebhooks-py-sign-ignores-tz"}
    assert {*SINGLE, *ROTATED, *TOLERANCE, *REFUSED, *others} == set(BY_ID)


@pytest.mark.parametrize("name", SINGLE)
def test_a_printed_signature_is_accepted_and_ours_is_equal(name) -> None:
    vector = BY_ID[name]
    headers = headers_of(vector)
    assert verify(vector, headers, [vector["inputs"]["secret"]]).valid
    assert sign(vector) == headers


@pytest.mark.parametrize("name", ROTATED)
def test_a_rotation_is_accepted_with_either_secret(name) -> None:
    """WB-067."""
    vector = BY_ID[name]
    inputs = vector["inputs"]
    new, old = inputs.get("secret_new", inputs.get("secret")), inputs["secret_old"]
    for secrets in ([new], [old], [new, old]):
        assert verify(vector, headers_of(vector), secrets).valid


@pytest.mark.parametrize("name", TOLERANCE)
def test_the_tolerance_is_that_of_the_official_client(name) -> None:
    vector = BY_ID[name]
    verdict = verify(
        vector, sign(vector), [vector["inputs"]["secret"]], now=vector["inputs"]["clock"]
    )
    accepted = vector["output"]["result"] == "accepted"
    assert verdict.reason is (None if accepted else RejectReason.STALE)


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_official_client_refuses_we_refuse(name) -> None:
    vector = BY_ID[name]
    headers = {SIGNATURE_HEADER[vector["provider"]]: vector["inputs"]["header"]}
    verdict = verify(
        vector, headers, [vector["inputs"]["secret"]], now=vector["inputs"].get("clock")
    )
    assert verdict.reason is REASONS.get(vector["output"].get("error"), RejectReason.MALFORMED)


def test_the_form_body_is_signed_and_not_the_json_in_it() -> None:
    """WB-056."""
    vector = BY_ID["github-form-encoded-ping"]
    digest = vector["output"]["digest_of_inner_json_for_contrast"]
    verdict = verify(vector, {"X-Hub-Signature-256": digest}, [vector["inputs"]["secret"]])
    assert verdict.reason is RejectReason.MISMATCH


def test_ed25519() -> None:
    vector = BY_ID["standardwebhooks-v1a-ed25519"]
    inputs = vector["inputs"]
    headers = {
        "webhook-id": inputs["msg_id"],
        "webhook-timestamp": str(inputs["timestamp"]),
        "webhook-signature": vector["output"]["webhook-signature"],
    }
    assert verify(vector, headers, [inputs["public_key"]]).valid
    assert sign(vector | {"inputs": inputs | {"secret": inputs["secret_key"]}}) == headers


def test_the_python_client_mislabels_a_zone() -> None:
    """Its signature is right for the second it signed, and for no other."""
    vector = BY_ID["standardwebhooks-py-sign-ignores-tz"]
    inputs, output = vector["inputs"], vector["output"]
    for timestamp, reason in [
        (output["equals_signature_for_epoch"], None),
        (1_700_000_000, RejectReason.MISMATCH),
    ]:
        headers = {
            "webhook-id": inputs["msg_id"],
            "webhook-timestamp": str(timestamp),
            "webhook-signature": output["webhook-signature"],
        }
        assert verify(vector, headers, [inputs["secret"]], now=timestamp).reason is reason
