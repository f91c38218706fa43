"""Signature schemes: pure functions over bytes, `sign()` beside `verify()`.

Nothing here knows Django requests, settings or models.
"""

from __future__ import annotations

from .message import Message, Scheme, Verdict
from .secrets import Secret

__all__ = ["Message", "Scheme", "Secret", "Verdict"]
