"""A delivery as it came over the wire, with its body parsed once and only when asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

from ..exceptions import MalformedWebhook
from ..signatures import Message

#: Deeper JSON is refused. Python's own limit differs between versions, and what one process
#: parses the next may not.
MAX_JSON_DEPTH = 100
MAX_FORM_FIELDS = 1000

_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
_FORM = "application/x-www-form-urlencoded"


def _nests_too_deep(text: bytes) -> bool:
    """Whether JSON text nests deeper than the limit, found without recursion."""
    if text.count(b"[") + text.count(b"{") <= MAX_JSON_DEPTH:
        return False
    without_escapes = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    skeleton = re.sub(rb'"[^"]*"', b"", without_escapes.translate(None, _NOT_STRUCTURE))
    # Each round takes away the innermost pairs, so the rounds count the depth.
    for _ in range(MAX_JSON_DEPTH):
        smaller = skeleton.replace(b"[]", b"").replace(b"{}", b"")
        if smaller == skeleton:
            return False
        skeleton = smaller
    return bool(skeleton)


def decode_text(body: bytes, charset: str = "") -> str:
    """Decode as UTF-8 (a byte order mark is allowed), else as the declared charset.

    Raises MalformedWebhook if neither fits.
    """
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    try:
        if charset:
            return body.decode(charset)
    except (LookupError, UnicodeError, ValueError):
        pass
    raise MalformedWebhook("The body is not text in UTF-8 or in the charset it declares.")


def parse_json(text: str | bytes, charset: str = "") -> Any:
    """Parse JSON, turning every way it can fail into MalformedWebhook."""
    if isinstance(text, bytes):
        text = decode_text(text, charset)
    if _nests_too_deep(text.encode("utf-8", "surrogatepass")):
        raise MalformedWebhook(f"The JSON nests deeper than {MAX_JSON_DEPTH} levels.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # ValueError alone: an integer of more than 4300 digits isn't a JSONDecodeError.
        raise MalformedWebhook("The body is not JSON that can be read.") from None


@dataclass(frozen=True)
class Incoming:
    """One delivery: the bytes that were signed and views of them.

    `headers` has lower-case names.
    """

    message: Message
    content_type: str = ""
    charset: str = ""
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        """The body exactly as it came."""
        return self.message.body

    @property
    def headers(self) -> Mapping[str, str]:
        """The request headers under lower-case names."""
        return self.message.headers

    def header(self, name: str) -> str:
        """One header's value without surrounding white space, empty if it is absent."""
        return self.message.headers.get(name.lower(), "").strip()

    @property
    def is_form(self) -> bool:
        """Whether the body is form-encoded."""
        return self.content_type == _FORM

    @cached_property
    def form(self) -> dict[str, str]:
        """The first value of each form field. Raises MalformedWebhook."""
        try:
            pairs = parse_qsl(
                decode_text(self.body, self.charset),
                keep_blank_values=True,
                max_num_fields=MAX_FORM_FIELDS,
            )
        except ValueError:
            raise MalformedWebhook("The form body cannot be read.") from None
        fields: dict[str, str] = {}
        for name, value in pairs:
            fields.setdefault(name, value)
        return fields

    @cached_property
    def json(self) -> Any:
        """The body parsed as JSON. Raises MalformedWebhook."""
        return parse_json(self.body, self.charset)

    @property
    def json_object(self) -> dict[str, Any]:
        """The body as a JSON object. Raises MalformedWebhook if it is something else."""
        if not isinstance(self.json, dict):
            raise MalformedWebhook("The body is JSON but not an object.")
        return self.json


def text_at(document: Any, path: str) -> str:
    """The text at a dotted path of a JSON document; empty if absent, blank or not text."""
    for part in path.split("."):
        if not isinstance(document, dict):
            return ""
        document = document.get(part)
    return document.strip() if isinstance(document, str) else ""
