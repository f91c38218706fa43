"""A stored body as text to be read: parsed where possible, and never more than a page of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from ..providers import Incoming
from .sources import Source

#: A body of up to this many bytes is read and parsed; of a larger one the start is shown as text.
READ_LIMIT = 1024 * 1024
#: So many characters are shown.
SHOWN = 100_000
#: So many bytes of what is no text are shown.
HEX_SHOWN = 512
HEX_WIDTH = 16
#: With more unreadable characters than one in so many, a body is no text.
UNREADABLE_SHARE = 10

#: Stands in the place of a token; no word, so nothing to translate.
HIDDEN = "********"

JSON = gettext_noop("JSON, indented")
FORM = gettext_noop("form fields")
TEXT = gettext_noop("text as it came")
HEX = gettext_noop("not text: the first bytes in hexadecimal")


@dataclass(frozen=True)
class Payload:
    """Text to show; `kind` says how it was made, `size` is that of the body in bytes."""

    text: str = ""
    kind: str = ""
    size: int = 0
    cut: bool = False
    kept: bool = True

    @property
    def kind_label(self) -> Any:
        """How the text was made, in the viewer's language."""
        return _(self.kind) if self.kind else ""


def payload_of(head: bytes | None, size: int, content_type: str, source: Source) -> Payload:
    """What to show of a body whose first bytes are `head`; None if it isn't kept."""
    if head is None:
        return Payload(kept=False)
    parsed = _parsed(head, content_type, source) if len(head) == size else None
    kind, text = parsed or _plain(head)
    whole = len(head) == size or kind == HEX
    if kind == HEX:
        whole = size <= HEX_SHOWN
    return Payload(printable(text[:SHOWN]), kind, size, cut=len(text) > SHOWN or not whole)


def printable(text: str) -> str:
    """Text that can be sent as UTF-8: what cannot stands escaped."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def _parsed(body: bytes, content_type: str, source: Source) -> tuple[str, str] | None:
    """The document that handlers see, or None if there is none to be had."""
    incoming = Incoming.stored(body, content_type)
    try:
        if source.provider is not None:
            document = source.provider.payload(incoming)
        else:
            document = incoming.form if incoming.is_form else incoming.json
        form = incoming.is_form and document == incoming.form
        document = _without_tokens(document, source)
        if form:
            return FORM, "\n".join(f"{name} = {value}" for name, value in document.items())
        return JSON, json.dumps(document, indent=2, ensure_ascii=False, default=str)
    except Exception:
        # A project's own provider may raise anything, and the page has to open all the same.
        return None


def _without_tokens(document: Any, source: Source) -> Any:
    """The document without what authenticates somebody, as its provider names it."""
    if source.provider is None or not source.provider.hidden_fields:
        return document
    return _hide(document, source.provider.hidden_fields)


def _hide(document: Any, names: frozenset[str]) -> Any:
    """A document in which fields of these names, at any depth, are not to be read."""
    if isinstance(document, dict):
        return {
            name: HIDDEN if name in names else _hide(value, names)
            for name, value in document.items()
        }
    if isinstance(document, list):
        return [_hide(value, names) for value in document]
    return document


def _plain(head: bytes) -> tuple[str, str]:
    start = head[: SHOWN * 4]
    text = start.decode("utf-8", "replace")
    unreadable = sum(not mark.isprintable() and mark not in "\r\n\t" for mark in text)
    unreadable += text.count("\ufffd")
    if unreadable * UNREADABLE_SHARE > len(text):
        return HEX, hex_dump(head[:HEX_SHOWN])
    return TEXT, text


def hex_dump(data: bytes) -> str:
    """Bytes in hexadecimal, sixteen a line, with what is readable beside them."""
    lines = []
    for start in range(0, len(data), HEX_WIDTH):
        row = data[start : start + HEX_WIDTH]
        readable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:06x}  {row.hex(' '):<47}  {readable}")
    return "\n".join(lines)
