from __future__ import annotations

import base64

import pytest

from django_webhook_idempotency.providers.stripe import Stripe
from django_webhook_idempotency.signatures import Secret, StandardWebhooks

from .factories import CASES


@pytest.mark.parametrize(
    "text",
    ["", "   ", "\n", "\u00a0", b"", b" \t", "\0\0", b"\0 ", "whsec_", "whsec_\0", "v1,whsec_"],
)
def test_an_empty_secret_is_refused(text: str | bytes) -> None:
    """WB-065: HMAC with an empty key is legal, and zero bytes are what pads one."""
    with pytest.raises(ValueError, match="empty"):
        Secret.parse(text)


def test_pasted_white_space_is_dropped() -> None:
    """WB-066."""
    assert Secret.parse(" whsec_x\r\n") == Secret.parse("whsec_x") == Secret.parse(b"whsec_x\n")
    assert Secret.parse("\u00a0whsec_x") == Secret(b"whsec_x")


def test_bytes_of_the_environment_come_back() -> None:
    assert Secret.parse(b"k\xe9y".decode(errors="surrogateescape")).value == b"k\xe9y"


def test_what_is_not_text_is_refused_without_being_shown() -> None:
    with pytest.raises(ValueError, match="not text") as caught:
        Secret.parse("hidden\ud800")
    assert caught.value.__cause__ is None
    assert "hidden" not in str(caught.value)


def test_the_value_stays_out_of_repr_and_the_fingerprint_tells_secrets_apart() -> None:
    secret = Secret.parse("whsec_hidden")
    assert "hidden" not in repr(secret)
    assert len(secret.fingerprint) == 8
    assert secret.fingerprint == Secret.parse("whsec_hidden ").fingerprint
    assert secret.fingerprint != Secret.parse("whsec_other").fingerprint


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (" whsec_{}", "white space"),
        ("whsec_{}\n", "white space"),
        ("whsec_{0}\n{0}", "line break"),
        ("whsec_{}\u200b", "invisible"),
        ('"whsec_{}"', "quotation marks"),
        ("'whsec_{}'", "quotation marks"),
        ("v1,whsec_{}", "leave out 'v1,'"),
    ],
)
def test_every_scheme_names_what_a_careless_paste_left(case, value, hint) -> None:
    """WB-066: said at start-up, without the secret."""
    encoded = base64.b64encode(bytes(range(32))).decode()
    problem = case.scheme.check_secret(Secret(value.format(encoded).encode()))
    assert hint in problem
    assert encoded not in problem


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_proper_secret_passes(case) -> None:
    assert case.scheme.check_secret(case.secret) is None


def test_a_binary_secret_passes_where_any_bytes_are_a_key() -> None:
    assert CASES["github"].scheme.check_secret(Secret(b"\xff\xfe\xfd key")) is None


def test_a_prefix_is_checked_where_the_provider_has_one() -> None:
    """WB-066: an API key in the place of the webhook secret."""
    scheme = Stripe.scheme
    assert scheme.check_secret(Secret.parse("whsec_x")) is None
    assert "does not start with 'whsec_'" in (scheme.check_secret(Secret.parse("sk_live_x")) or "")


KEY = base64.b64encode(bytes(range(24))).decode()


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("sk_live_" + KEY, "none of 'whsec_', 'whpk_' and 'whsk_'"),
        ("whsec_not base64!", "not base64"),
        ("whsec_n\u00f6t", "not base64"),
        ("whsec_ab_c", "not base64"),
        ("whsec_abcde", "not base64"),
        ("whsec_AAAA", "empty key"),
        ("whsec_YWJj", "3 bytes, not to 24 to 75"),
        ("whsec_" + base64.b64encode(b"x" * 76).decode(), "76 bytes"),
        ("whpk_" + KEY, "32 bytes"),
        ("whsk_" + KEY, "32 or 64 bytes"),
    ],
)
def test_standard_webhooks_says_what_is_wrong_with_a_secret(value, hint) -> None:
    """WB-066."""
    problem = StandardWebhooks().check_secret(Secret.parse(value))
    assert hint in (problem or "")
    assert value.partition("_")[2] not in (problem or "")


@pytest.mark.parametrize(
    "value",
    [
        "whsec_" + KEY,
        KEY,
        "whsec_" + base64.b64encode(b"x" * 25).decode().rstrip("="),
        "whsec_" + base64.b64encode(b"x" * 75).decode(),
        "whpk_" + base64.b64encode(b"x" * 32).decode(),
        "whsk_" + base64.b64encode(b"x" * 64).decode(),
    ],
)
def test_standard_webhooks_takes_every_form_of_a_secret(value) -> None:
    """WB-066: with and without padding and prefix."""
    assert StandardWebhooks().check_secret(Secret.parse(value)) is None
