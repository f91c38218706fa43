"""Cut JSON apart without writing it anew: each piece keeps the spelling that it came with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from json.decoder import JSONDecoder
from typing import Any

_DECODER = JSONDecoder()
_BLANKS = " \t\n\r"


def elements(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """The elements of the array at a name of a JSON object: as spelled, and parsed.

    Raises ValueError where the text is no such object.
    """
    for key, start in _members(text):
        if key == name:
            yield from _elements(text, start)
            return
    raise ValueError(f"There is no {name!r}.")


def with_member(text: str, name: str, value: Any) -> str:
    """A JSON object that has one more member, at its end: there it counts even if named before."""
    return f"{text.rstrip(_BLANKS)[:-1].rstrip(_BLANKS)}, {json.dumps(name)}: {json.dumps(value)}}}"


def _members(text: str) -> Iterator[tuple[str, int]]:
    """The names of an object, and where the value of each begins."""
    at = _expect(text, 0, "{")
    while True:
        key, at = _DECODER.raw_decode(text, _after_blanks(text, at))
        at = _after_blanks(text, _expect(text, at, ":"))
        yield key, at
        _, at = _DECODER.raw_decode(text, at)
        at = _expect(text, at, ",")


def _elements(text: str, start: int) -> Iterator[tuple[str, Any]]:
    at = _after_blanks(text, _expect(text, start, "["))
    if text[at : at + 1] == "]":
        return
    while True:
        value, end = _DECODER.raw_decode(text, at)
        yield text[at:end], value
        at = _after_blanks(text, end)
        if text[at : at + 1] == "]":
            return
        at = _after_blanks(text, _expect(text, at, ","))


def _expect(text: str, at: int, sign: str) -> int:
    at = _after_blanks(text, at)
    if text[at : at + 1] != sign:
        raise ValueError(f"{sign!r} is missing.")
    return at + 1


def _after_blanks(text: str, at: int) -> int:
    while text[at : at + 1] in _BLANKS and at < len(text):
        at += 1
    return at
