"""Where a signature, its time and its id stand in the headers, and what they cover.

The layout is the same whatever the key is: HMAC, Ed25519 and ECDSA differ in `compare` only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache

from ..enums import RejectReason
from .headers import HeaderError, read_candidate, read_candidates, read_header
from .matching import find_secret, judge
from .message import Message, Verdict
from .secrets import Secret
from .times import TimeUnit, read_time, write_time

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PLAIN = frozenset({"body", "timestamp", "method", "url", "id"})


@lru_cache
def compiled(content: str) -> tuple[tuple[str, str], ...]:
    """Take a template apart into pairs of a literal text and the placeholder that follows it.

    The last placeholder is empty. Raises ValueError for a placeholder that does not exist.
    """
    texts = _PLACEHOLDER.split(content)
    literals, names = texts[::2], [*texts[1::2], ""]
    for name in names[:-1]:
        if name not in _PLAIN and not re.fullmatch(r"header:[A-Za-z0-9-]+", name):
            known = ", ".join(f"{{{plain}}}" for plain in sorted(_PLAIN))
            raise ValueError(f"{{{name}}} is not one of {known} and {{header:Name}}.")
    return tuple(zip(literals, names, strict=True))


@dataclass(frozen=True, slots=True)
class Parts:
    """What one delivery says: its signatures, and its time as it is written and as it counts."""

    candidates: Sequence[bytes]
    stamp: str = ""
    timestamp: int | None = None
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """`<prefix><signature>` in one header, over what `content` is a template of.

    `content` may name `{body}`, `{timestamp}` (as the delivery spells it), `{id}` (from
    `id_header`), `{method}`, `{url}` and `{header:Name}`. With a `separator`, the header holds
    several items: signatures that each begin with `prefix`, or, with a `field`, `name=value`
    pairs. Items of other names are skipped. The time is in the pair named `time_field` or in
    `time_header`, in `time_unit`; without either, no time is judged and a captured delivery
    verifies for ever.

    Raises ValueError for a template that names what does not exist or is read from nowhere.
    """

    header: str
    content: str = "{body}"
    _: KW_ONLY
    prefix: str = ""
    separator: str = ""
    field: str = ""
    time_field: str = ""
    time_header: str = ""
    time_unit: TimeUnit = "s"
    id_header: str = ""

    def __post_init__(self) -> None:
        names = {name for _, name in compiled(self.content)}
        if "timestamp" in names and not self.is_timestamped:
            raise ValueError("{timestamp} needs a time_field or a time_header.")
        if "id" in names and not self.id_header:
            raise ValueError("{id} needs an id_header.")
        if (self.field or self.time_field) and not (self.separator and self.field):
            raise ValueError("Fields need a field for the signature and a separator.")

    @property
    def is_timestamped(self) -> bool:
        """Whether a time is signed."""
        return bool(self.time_field or self.time_header)

    @property
    def signed_headers(self) -> frozenset[str]:
        """The headers that `verify` reads, in lower case; they hold signatures and no secret."""
        names = [name for _, name in compiled(self.content) if name.startswith("header:")]
        read = [self.header, self.time_header, self.id_header]
        read += [name.removeprefix("header:") for name in names]
        return frozenset(name.lower() for name in read if name)

    def sign(
        self,
        body: bytes,
        secret: Secret,
        *,
        timestamp: int = 0,
        message_id: str = "",
        request: Message | None = None,
    ) -> dict[str, str]:
        """Return the headers for `body` at `timestamp`.

        `request` tells method, URL and the other headers, where those are signed. Raises
        ValueError if the id that is signed is blank, or the secret cannot sign.
        """
        if self.id_header and not message_id.strip():
            raise ValueError("The message id is signed, and it is empty.")
        stamp = write_time(timestamp, self.time_unit)
        about = request or Message(body, {})
        parts = Parts((), stamp=stamp, message_id=message_id)
        signature = self.signature(secret, list(self._content(about, body, parts)))
        text = self.prefix + signature.decode()
        if self.field:
            text = f"{self.field}={text}"
        headers = {self.time_header: stamp, self.id_header: message_id}
        if self.time_field:
            text = f"{self.time_field}={stamp}{self.separator}{text}"
        return {name: value for name, value in headers.items() if name} | {self.header: text}

    def verify(
        self,
        message: Message,
        secrets: Sequence[Secret],
        *,
        now: float,
        tolerance: float | None,
    ) -> Verdict:
        """Check every signature against every secret, then the time, if one is signed.

        A right signature outside the tolerance, on either side, is STALE; a wrong one is MISMATCH
        whatever its time.
        """
        try:
            parts = self._read(message.headers)
            content = list(self._content(message, message.body, parts))
        except HeaderError as error:
            return Verdict(error.reason)
        secret = find_secret(
            secrets, lambda secret: self.matches(secret, content, parts.candidates)
        )
        if parts.timestamp is None:
            return Verdict(None if secret else RejectReason.MISMATCH, secret)
        return judge(secret, parts.timestamp, now=now, tolerance=tolerance)

    def check_secret(self, secret: Secret) -> str | None:
        """Say what is wrong with `secret`, without showing it; None if nothing is."""
        return secret.paste_error()

    def signature(self, secret: Secret, content: Sequence[bytes]) -> bytes:
        """The signature over the parts of `content`, as it is written. Raises ValueError."""
        raise TypeError(f"{type(self).__name__} must say how to sign.")

    def matches(
        self, secret: Secret, content: Sequence[bytes], candidates: Sequence[bytes]
    ) -> bool:
        """Whether any of the candidates is right; all are compared."""
        raise TypeError(f"{type(self).__name__} must say how to compare.")

    def message_id(self, headers: Mapping[str, str]) -> str:
        """Return the id that the signature covers; empty if it cannot be read."""
        try:
            return read_header(headers, self.id_header)
        except HeaderError:
            return ""

    def _read(self, headers: Mapping[str, str]) -> Parts:
        """Read what a delivery says of itself. Raises HeaderError."""
        text = read_header(headers, self.header)
        stamp = ""
        if self.field:
            items = text.split(self.separator)
            fields = [item.strip(" ").partition("=") for item in items]
            signatures = [value for name, _, value in fields if name == self.field]
            candidates = read_candidates(_after(self.prefix, signatures))
            if self.time_field:
                stamps = {value for name, _, value in fields if name == self.time_field}
                if len(stamps) != 1:
                    raise HeaderError(RejectReason.MALFORMED)
                stamp = stamps.pop()
        elif self.separator:
            items = [item.strip(" ") for item in text.split(self.separator)]
            candidates = read_candidates(_after(self.prefix, items))
        else:
            candidates = [read_candidate(text, self.prefix)]
        if self.time_header:
            stamp = read_header(headers, self.time_header)
        return Parts(
            candidates,
            stamp=stamp,
            timestamp=read_time(stamp, self.time_unit) if self.is_timestamped else None,
            message_id=read_header(headers, self.id_header) if self.id_header else "",
        )

    def _content(self, about: Message, body: bytes, parts: Parts) -> Iterator[bytes]:
        """The parts of what is signed, one after the other. Raises HeaderError."""
        values = {
            "timestamp": parts.stamp,
            "id": parts.message_id,
            "method": about.method,
            "url": about.url,
        }
        for literal, name in compiled(self.content):
            yield literal.encode()
            if name == "body":
                yield body
            elif name in values:
                yield values[name].encode(errors="surrogatepass")
            elif name:
                yield read_header(about.headers, name.removeprefix("header:")).encode()


def _after(prefix: str, texts: Sequence[str]) -> list[str]:
    return [text.removeprefix(prefix) for text in texts if text.startswith(prefix)]
