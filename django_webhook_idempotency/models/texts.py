"""Texts as the columns take them, and the digests that are compared."""

from __future__ import annotations

import hashlib

#: Error texts are cut to this many characters before they are stored.
MAX_ERROR = 2_000
MAX_TRACEBACK = 20_000


def displayable(text: str, length: int = 255) -> str:
    """Text that every database stores: no NUL, no lone surrogate, at most `length` characters."""
    clean = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    return clean[:length]


def text_of(error: BaseException) -> str:
    """An error's text, also of one that cannot say what it is."""
    try:
        return str(error)
    except Exception:
        return "(its text cannot be read)"


def digest_of(*parts: str) -> str:
    """SHA-256 hex over length-prefixed parts, so that no two lists of parts look alike."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()
