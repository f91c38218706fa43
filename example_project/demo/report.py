"""What a person sees, on a terminal and in the log of a CI run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .audit import Count
from .sender import SentLedger

#: Where the output isn't a terminal, one line for each of so many parts of the work.
PARTS = 5
WIDTH = 100


class Advance(Protocol):
    """Told each time that one more is done."""

    def __call__(self) -> None: ...


def make_console() -> Console:
    """A console for standard output, of fixed width where that isn't a terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


@contextmanager
def progress(console: Console, what: str, total: int) -> Iterator[Advance]:
    """A bar on a terminal, a few lines elsewhere."""
    if console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(what, total=total)
            yield lambda: bar.advance(task)
        return
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if done * PARTS // total > (done - 1) * PARTS // total:
            console.print(f"{what}: {done} of {total}")

    yield advance


def table(counts: Mapping[str, Count]) -> Table:
    """The counts of each provider and of all."""
    result = Table(show_footer=True)
    total = astuple(sum(counts.values(), Count()))
    result.add_column("provider", footer="all")
    names = ("sent", "events", "effects", "duplicates", "failed, then\nrecovered", "lost")
    for name, number in zip((*names, "doubled"), total, strict=True):
        result.add_column(name, footer=str(number), justify="right", vertical="bottom")
    for provider, line in counts.items():
        result.add_row(provider, *map(str, astuple(line)))
    return result


def show(
    console: Console, counts: Mapping[str, Count], sent: SentLedger, wrong: Sequence[str]
) -> None:
    """Print the table, what happened on the way, and the verdict."""
    console.print(table(counts))
    console.print(
        f"{len(sent.killed)} times a worker was killed in the middle of a handler; {sent.cut} "
        "requests were cut off and sent again."
    )
    for sentence in wrong:
        console.print(f"[bold red]WRONG[/] {escape(sentence)}")
    if not wrong:
        console.print("[bold green]RIGHT[/] Every event took effect exactly once.")
