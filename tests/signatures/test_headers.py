from __future__ import annotations

import pytest

from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.signatures.headers import (
    MAX_CANDIDATES,
    MAX_HEADER_LENGTH,
    HeaderError,
    read_candidate,
    read_candidates,
    read_header,
    read_timestamp,
)


def test_a_header_is_found_whatever_the_case_of_its_name() -> None:
    assert read_header({"x-signature": "a"}, "X-Signature") == "a"


def test_an_absent_header_is_missing() -> None:
    with pytest.raises(HeaderError) as caught:
        read_header({}, "x")
    assert caught.value.reason is RejectReason.MISSING


@pytest.mark.parametrize(
    "text",
    ["", "  ", "é", "\u0661", "\ud800", "a\0", "a\tb", "a\r\nb", "a" * (MAX_HEADER_LENGTH + 1)],
)
def test_a_header_that_cannot_be_read_is_malformed(text) -> None:
    with pytest.raises(HeaderError) as caught:
        read_header({"x": text}, "x")
    assert caught.value.reason is RejectReason.MALFORMED


def test_the_longest_header_is_read() -> None:
    assert len(read_header({"x": "a" * MAX_HEADER_LENGTH}, "x")) == MAX_HEADER_LENGTH


@pytest.mark.parametrize(
    "text",
    ["", "-1", "+1", " 1", "1 ", "1\n", "1_0", "1.0", "1e3", "0x1", "1,1", "٣", "²", "9" * 16],
)
def test_a_timestamp_is_ascii_digits_only(text) -> None:
    with pytest.raises(HeaderError) as caught:
        read_timestamp(text)
    assert caught.value.reason is RejectReason.MALFORMED


@pytest.mark.parametrize("text", ["0", "1700000000", "1700000000000", "9" * 15])
def test_a_timestamp_is_read(text) -> None:
    assert read_timestamp(text) == int(text)


@pytest.mark.parametrize("text", ["", "v0", "v0=", "v1=ab", " v0=ab", "v0=a b", "v0=ab,v0=ab"])
def test_one_signature_follows_the_prefix(text) -> None:
    with pytest.raises(HeaderError) as caught:
        read_candidate(text, "v0=")
    assert caught.value.reason is RejectReason.MALFORMED


def test_a_signature_is_read() -> None:
    assert read_candidate("v0=ab", "v0=") == b"ab"
    assert read_candidate("a+/_-b==", "") == b"a+/_-b=="


def test_unreadable_signatures_are_skipped() -> None:
    assert read_candidates(["", "a b", "ab", "é", "cd=="]) == [b"ab", b"cd=="]


@pytest.mark.parametrize("texts", [[], ["", "é"], ["ab"] * (MAX_CANDIDATES + 1)])
def test_no_signature_and_too_many_are_malformed(texts) -> None:
    with pytest.raises(HeaderError) as caught:
        read_candidates(texts)
    assert caught.value.reason is RejectReason.MALFORMED


def test_as_many_signatures_as_allowed_are_read() -> None:
    assert len(read_candidates(["ab"] * MAX_CANDIDATES)) == MAX_CANDIDATES
