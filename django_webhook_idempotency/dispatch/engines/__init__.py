"""What tells a worker that an event is due: the engine that `QUEUE` names."""

from __future__ import annotations

from .base import QueueEngine, queue_engine, tell

__all__ = ["QueueEngine", "queue_engine", "tell"]
