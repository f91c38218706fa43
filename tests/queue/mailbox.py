"""A queue engine of a project's own: messages go into a list, which a test can read and lose."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

from django.core.checks import CheckMessage


class Mailbox:
    sends_messages = True
    messages: ClassVar[list[int]] = []
    #: How many more messages it takes; None for any number.
    room: ClassVar[int | None] = None
    _lock: ClassVar[Any] = threading.Lock()

    def enqueue(self, pk: int) -> None:
        with self._lock:
            if Mailbox.room is not None:
                if not Mailbox.room:
                    raise ConnectionError("the broker is away")
                Mailbox.room -= 1
            self.messages.append(pk)

    def check(self) -> list[CheckMessage]:
        return []

    @classmethod
    def emptied(cls) -> list[int]:
        """Take all messages out."""
        with cls._lock:
            taken = cls.messages[:]
            cls.messages.clear()
            return taken
