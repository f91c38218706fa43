"""Whatever a stranger sends, there is a verdict, and it is a rejection."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .factories import CASES, NOW, received

every_scheme = pytest.mark.parametrize("case", CASES.values(), ids=CASES)

anything = st.text(max_size=200)
# st.text() leaves them out.
surrogates = st.text(st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF), max_size=5)
_PIECES = [
    *["t=", "v1", "v1a", "v0=", "v1=", "sha256=", "=", ",", " ", ":", ".", "-", "\0", "é", "٣"],
    *["0" * 64, "A" * 43 + "=", "A" * 88, str(NOW), "1" * 20, "\ud800", "AAAA"],
]
near_misses = st.lists(st.sampled_from(_PIECES), max_size=12).map("".join)


@every_scheme
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_arbitrary_headers_and_bodies_neither_raise_nor_verify(case, data) -> None:
    values = st.one_of(anything, surrogates, near_misses)
    sent = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(case.headers, values)))
    body = data.draw(st.binary(max_size=200))
    verdict = case.scheme.verify(
        received(sent, body), [case.secret, case.old_secret], now=NOW, tolerance=None
    )
    assert verdict.reason is not None
    assert not verdict.valid


@every_scheme
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_changed_header_verifies_only_what_was_signed(case, data) -> None:
    headers = case.signed()
    name = data.draw(st.sampled_from(sorted(headers)))
    value = headers[name]
    position = data.draw(st.integers(0, len(value)))
    replaced = data.draw(st.integers(0, 3))
    inserted = data.draw(st.one_of(st.just(""), st.text(max_size=3), near_misses))
    changed = value[:position] + inserted + value[position + replaced :]
    verdict = case.scheme.verify(
        received(headers | {name: changed}), [case.secret], now=NOW, tolerance=300
    )
    # Some changes touch no signature: an item of an unknown version, blanks between items, or the
    # bits of the last base64 character that stand for nothing.
    if verdict.valid:
        assert verdict.timestamp in (NOW, None)
        assert value.rstrip("=").rpartition(",")[2][:-1] in changed


@every_scheme
@settings(max_examples=50, deadline=None)
@given(body=st.binary(max_size=2000), data=st.data())
def test_what_is_signed_verifies(case, body, data) -> None:
    timestamp = data.draw(st.integers(0, case.latest))
    headers = case.signed(body, timestamp=timestamp)
    assert case.scheme.verify(
        received(headers, body), [case.old_secret, case.secret], now=timestamp, tolerance=0
    ).valid
