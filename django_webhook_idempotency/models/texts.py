"""Texts as the columns take them, and the digests that are compared."""

from __future__ import annotations

import hashlib

from ..exceptions import Reject, Superseded

_PACKAGE = __name__.partition(".")[0] + "."
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


#: Classes whose names, where they are stored, decide what becomes of an event.
_OURS = frozenset({"Reject", "Superseded", "WorkerLost"})


def class_name(error: BaseException) -> str:
    """The name of an error's class, as it is stored.

    A subclass of `Reject` says so, and a stranger's class of one of our names says whose it is.
    """
    kind = type(error)
    if isinstance(error, Superseded):
        return Superseded.__name__
    if isinstance(error, Reject):
        return "Reject" if kind is Reject else f"Reject: {kind.__name__}"
    if not kind.__name__:  # an empty name stands for a success
        return Exception.__name__
    is_strangers = kind.__name__ in _OURS and not kind.__module__.startswith(_PACKAGE)
    return f"{kind.__module__}.{kind.__name__}" if is_strangers else kind.__name__


def is_rejection(text: str) -> bool:
    """Whether a stored class name, or the text of an error, is that of a `Reject`."""
    return text == "Reject" or text.startswith("Reject:")


def digest_of(*parts: str) -> str:
    """SHA-256 hex over length-prefixed parts, so that no two lists of parts look alike."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()
