"""What handlers did, in a file that outlives the process that wrote it.

One `write()` in append mode is one line, whole and in order, and a killed process takes none of
its lines with it: what a transaction undoes stays visible here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Line:
    at: float
    pid: int
    word: str
    event: str
    note: str = ""


class Journal:
    """Lines that server processes write and the test reads."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, word: str, event: str, note: object = "") -> None:
        line = f"{time.monotonic()} {os.getpid()} {word} {event} {note}\n"
        with open(self.path, "ab", buffering=0) as file:
            file.write(line.encode())

    def lines(self, word: str = "", event: str = "") -> list[Line]:
        """All lines, or those with a word, or on an event."""
        return [
            line
            for line in self._read()
            if (not word or line.word == word) and (not event or line.event == event)
        ]

    def running(self) -> dict[int, Line]:
        """The processes that are inside a handler now, and the line with which they entered."""
        inside: dict[int, Line] = {}
        for line in self._read():
            if line.word == "enter":
                inside[line.pid] = line
            elif line.word == "leave":
                inside.pop(line.pid, None)
        return inside

    def _read(self) -> Iterator[Line]:
        if not self.path.exists():
            return
        # A reader may see the first half of a line that is being written.
        whole, _, _ = self.path.read_text().rpartition("\n")
        for text in whole.splitlines():
            at, pid, word, event, *note = text.split(" ", 4)
            yield Line(float(at), int(pid), word, event, note[0] if note else "")
