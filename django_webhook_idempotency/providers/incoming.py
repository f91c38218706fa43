"""A delivery as it came over the wire, with its body parsed once and only when asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any
from urllib.parse import parse_qsl

from django.utils.http import parse_header_parameters

from ..exceptions import MalformedWebhook
from ..signatures import Message

#: Deeper JSON is refused. Python's own limit differs between versions, and what one process
#: parses the next may not.
MAX_JSON_DEPTH = 100
MAX_FORM_FIELDS = 1000
FORM = "application/x-www-form-urlencoded"

#: What each character of `brackets` adds to the depth; a quote is left of a broken string.
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1, ord('"'): 0}
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))


def brackets(text: bytes) -> bytes:
    """The brackets of JSON text, strings and everything else left out."""
    without_escapes = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return re.sub(rb'"[^"]*"', b"", without_escapes.translate(None, _NOT_STRUCTURE))


def _nests_too_deep(text: bytes) -> bool:
    """Whether JSON text nests deeper than the limit, found without recursion."""
    if text.count(b"[") + text.count(b"{") <= MAX_JSON_DEPTH:
        return False
    return max(accumulate(map(_STEP.__getitem__, brackets(text))), default=0) > MAX_JSON_DEPTH


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


def as_object(document: Any) -> dict[str, Any]:
    """Return a parsed JSON document that is an object. Raises MalformedWebhook for another."""
    if not isinstance(document, dict):
        raise MalformedWebhook("The body is JSON but not an object.")
    return document


def parse_form(body: bytes, charset: str = "") -> dict[str, str]:
    """The first value of each field of a form body. Raises MalformedWebhook.

    What is percent-encoded has to decode: two ids that do not must not turn into the same
    replacement characters.
    """
    text = decode_text(body, charset)
    for encoding in ("utf-8", charset or "utf-8"):
        try:
            pairs = parse_qsl(
                text,
                keep_blank_values=True,
                encoding=encoding,
                errors="strict",
                max_num_fields=MAX_FORM_FIELDS,
            )
        except (LookupError, ValueError):
            continue
        fields: dict[str, str] = {}
        for name, value in pairs:
            fields.setdefault(name, value)
        return fields
    raise MalformedWebhook("The form body cannot be read.")


def media_type(header: str) -> tuple[str, str]:
    """Split a Content-Type header into the bare type in lower case and its charset.

    Both are empty if it cannot be read.
    """
    try:
        content_type, parameters = parse_header_parameters(header)
    except (LookupError, TypeError, ValueError):
        # TypeError: the parser of the standard library sorts `charset*` and `charset*0` badly.
        return "", ""
    return content_type, parameters.get("charset", "")


@dataclass(frozen=True)
class Incoming:
    """One delivery: the bytes that were signed and views of them.

    `headers` has lower-case names; `content_type` is the bare media type in lower case.
    """

    message: Message
    content_type: str = ""
    charset: str = ""
    query: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def stored(cls, body: bytes, content_type: str) -> Incoming:
        """A body that was kept, with the Content-Type header that it came with."""
        bare, charset = media_type(content_type)
        return cls(Message(body, {"content-type": content_type}), bare, charset)

    @property
    def body(self) -> bytes:
        """The body exactly as it came."""
        return self.message.body

    @property
    def headers(self) -> Mapping[str, str]:
        """The request headers under lower-case names."""
        return self.message.headers

    def header(self, name: str) -> str:
        """One header's value without the blanks around it, empty if it is absent."""
        return self.message.headers.get(name.lower(), "").strip(" \t")

    @property
    def is_form(self) -> bool:
        """Whether the body is form-encoded."""
        return self.content_type == FORM

    @cached_property
    def form(self) -> dict[str, str]:
        """The first value of each form field. Raises MalformedWebhook."""
        return parse_form(self.body, self.charset)

    @cached_property
    def form_payload(self) -> Any:
        """The JSON in the form field `payload`, where several providers put it.

        Raises MalformedWebhook.
        """
        return parse_json(self.form.get("payload", ""))

    @cached_property
    def json(self) -> Any:
        """The body parsed as JSON. Raises MalformedWebhook."""
        return parse_json(self.body, self.charset)

    @property
    def json_object(self) -> dict[str, Any]:
        """The body as a JSON object. Raises MalformedWebhook if it is something else."""
        return as_object(self.json)


def text_at(document: Any, path: str) -> str:
    """The text at a dotted path of a JSON document, as it stands there.

    Empty if it is absent, blank or not text.
    """
    for part in path.split("."):
        if not isinstance(document, dict):
            return ""
        document = document.get(part)
    return document if isinstance(document, str) and document.strip() else ""
