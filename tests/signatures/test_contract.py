"""What holds for every scheme."""

from __future__ import annotations

from dataclasses import replace

import pytest

from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.signatures import Secret

from .factories import BODY, CASES, NOW, received

every_scheme = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
_TIMESTAMPED = {name: case for name, case in CASES.items() if case.timestamped}
timestamped_schemes = pytest.mark.parametrize("case", _TIMESTAMPED.values(), ids=_TIMESTAMPED)
_HMAC = {name: case for name, case in CASES.items() if name != "ed25519"}
hmac_schemes = pytest.mark.parametrize("case", _HMAC.values(), ids=_HMAC)


def verify(case, headers, *, body=BODY, secrets=None, now=NOW, tolerance=300):
    secrets = [case.secret] if secrets is None else secrets
    return case.scheme.verify(received(headers, body), secrets, now=now, tolerance=tolerance)


@every_scheme
def test_what_it_signs_it_verifies(case) -> None:
    verdict = verify(case, case.signed())
    assert verdict.valid
    assert verdict.reason is None
    assert verdict.secret is case.secret
    assert verdict.timestamp == (NOW if case.timestamped else None)


@every_scheme
def test_it_reads_the_headers_it_signs_with(case) -> None:
    assert {name.lower() for name in case.signed()} == set(case.headers)


@every_scheme
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe\0\x80",
        b'{"text":"\\u001B[31m"}',
        b'{ "amount" : 1.0 }',
        b'{"url":"https:\\/\\/example.com"}',
        b'{"a":1,"a":2}',
        "{'é': '💸'}".encode(),
        b"payload=%7B%22zen%22%3A%22Keep+it%22%7D",
        b"x" * 1_000_000,
    ],
)
def test_the_bytes_are_signed_as_they_come(case, body) -> None:
    """WB-053, WB-056: nothing is parsed, decoded or written anew."""
    assert verify(case, case.signed(body), body=body).valid


@every_scheme
def test_a_body_changed_by_one_byte_is_a_mismatch(case) -> None:
    headers = case.signed()
    for position in (0, len(BODY) // 2, len(BODY) - 1):
        changed = bytearray(BODY)
        changed[position] ^= 1
        assert verify(case, headers, body=bytes(changed)).reason is RejectReason.MISMATCH
    assert verify(case, headers, body=BODY + b"\n").reason is RejectReason.MISMATCH
    assert verify(case, headers, body=b"").reason is RejectReason.MISMATCH


@every_scheme
def test_a_wrong_secret_is_a_mismatch(case) -> None:
    verdict = verify(case, case.signed(), secrets=[case.old_secret])
    assert verdict.reason is RejectReason.MISMATCH
    assert verdict.secret is None


@every_scheme
def test_no_secret_never_verifies(case) -> None:
    """WB-065."""
    assert verify(case, case.signed(), secrets=[]).reason is RejectReason.MISMATCH


@every_scheme
def test_the_verdict_says_which_secret_matched(case) -> None:
    """WB-067: new and old secret, deliveries signed with either."""
    signed_with_old = case.scheme.sign(BODY, case.old_secret, timestamp=NOW, message_id="msg_1")
    both = [case.secret, case.old_secret]
    assert verify(case, case.signed(), secrets=both).secret is case.secret
    assert verify(case, signed_with_old, secrets=both).secret is case.old_secret
    assert verify(case, signed_with_old, secrets=both[::-1]).secret is case.old_secret


@every_scheme
def test_a_secret_of_another_scheme_harms_no_other_secret(case) -> None:
    strangers = [Secret.parse("v1,whsec_!"), Secret(b"\xff\xfe"), Secret.parse("plain text")]
    assert verify(case, case.signed(), secrets=[*strangers, case.secret]).secret is case.secret
    assert verify(case, case.signed(), secrets=strangers).reason is RejectReason.MISMATCH


@every_scheme
def test_a_missing_header_is_missing(case) -> None:
    for name in case.signed():
        headers = case.signed()
        del headers[name]
        assert verify(case, headers).reason is RejectReason.MISSING
    assert verify(case, {}).reason is RejectReason.MISSING


@every_scheme
@pytest.mark.parametrize("text", ["", " ", "é", "\ud800", "\0", "\u0661", "a" * 100_000, "\n"])
def test_an_unreadable_header_is_malformed(case, text) -> None:
    for name in case.signed():
        assert verify(case, case.signed() | {name: text}).reason is RejectReason.MALFORMED


@every_scheme
def test_a_repeated_field_is_no_exception_and_no_second_chance(case) -> None:
    """HTTP servers join repeated fields with commas."""
    for name, value in case.signed().items():
        for repeated in (f"x,{value}", f"{value},x"):
            verdict = verify(case, case.signed() | {name: repeated}, secrets=[case.old_secret])
            assert verdict.reason in (RejectReason.MALFORMED, RejectReason.MISMATCH)


@hmac_schemes
def test_every_secret_is_compared_even_after_a_match(case, compared) -> None:
    assert verify(case, case.signed(), secrets=[case.secret, case.old_secret, case.secret]).valid
    assert len(compared) == 3
    assert all(isinstance(value, bytes) for pair in compared for value in pair)


@every_scheme
def test_a_scheme_is_a_value(case) -> None:
    assert replace(case.scheme) == case.scheme
    assert hash(case.scheme) == hash(replace(case.scheme))


@every_scheme
def test_no_repr_shows_secret_body_or_headers(case) -> None:
    headers = case.signed()
    verdict = verify(case, headers)
    shown = repr([case.scheme, case.secret, received(headers), verdict])
    assert case.secret.text not in shown
    assert "customer.updated" not in shown
    for value in set(headers.values()) - {case.stamp(NOW), "msg_1"}:
        assert value not in shown


@timestamped_schemes
@pytest.mark.parametrize("offset", [-300, -1, 0, 1, 300])
def test_a_time_inside_the_tolerance_is_accepted(case, offset) -> None:
    assert verify(case, case.signed(timestamp=NOW + offset)).valid


@timestamped_schemes
@pytest.mark.parametrize("offset", [-4 * 3600, -301, 301, 4 * 3600])
def test_a_right_signature_outside_the_tolerance_is_stale(case, offset) -> None:
    """WB-068: past and future, and only when the secret is right."""
    headers = case.signed(timestamp=NOW + offset)
    verdict = verify(case, headers)
    assert verdict.reason is RejectReason.STALE
    assert verdict.secret is None
    assert verdict.timestamp == NOW + offset
    assert verify(case, headers, secrets=[case.old_secret]).reason is RejectReason.MISMATCH
    assert verify(case, headers, tolerance=None).valid
    assert verify(case, headers, tolerance=24 * 3600).valid


@timestamped_schemes
def test_the_time_is_signed(case) -> None:
    fresh = {
        name: value.replace(case.stamp(NOW - 301), case.stamp(NOW))
        for name, value in case.signed(timestamp=NOW - 301).items()
    }
    assert verify(case, fresh).reason is RejectReason.MISMATCH


@timestamped_schemes
@pytest.mark.parametrize(
    "text", ["-1700000000", "+1700000000", "1700000000.0", "1.7e9", "9" * 400, "17_00", "0x1"]
)
def test_a_time_that_cannot_be_read_is_malformed(case, text) -> None:
    written = case.stamp(NOW)
    headers = {name: value.replace(written, text) for name, value in case.signed().items()}
    assert verify(case, headers).reason is RejectReason.MALFORMED


@timestamped_schemes
def test_a_giant_time_is_stale_and_no_exception(case) -> None:
    assert verify(case, case.signed(timestamp=case.latest)).reason is RejectReason.STALE
