"""Deliveries that only carry a key: deduplicated, not verified."""

from __future__ import annotations

from typing import Any, ClassVar

from .base import Provider
from .identity import Identity
from .incoming import Incoming


class Keyed(Provider):
    """Stands behind `@idempotent_webhook(key=...)` where no provider class is configured.

    No signature is checked, so the view must know whom it lets in. A delivery that the view
    answers with a 4xx leaves no event behind.
    """

    is_signed: ClassVar[bool] = False

    def accepts(self, content_type: str) -> bool:
        """Every media type: the view decides what it reads."""
        return True

    def identify(self, incoming: Incoming) -> Identity:
        """Only the decorator knows the key; without one there is no usable id."""
        return Identity(self.usable_id("", incoming))

    def payload(self, incoming: Incoming) -> Any:
        """JSON where it is JSON, the fields of a form, else the bytes."""
        if incoming.is_form:
            return incoming.form
        return incoming.json if incoming.content_type.endswith("json") else incoming.body
