"""Ask the provider what we did not get, and get it."""

from __future__ import annotations

from .base import RateLimited, Sent, Source, SourceError, SourceRefused

__all__ = ["RateLimited", "Sent", "Source", "SourceError", "SourceRefused"]
