"""Progress for people: a live bar on a terminal, plain lines elsewhere, silence when quiet."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn


class Display:
    """Counts image passes through networks, the unit in which every phase takes about equally long.

    ``advance`` ends one outer iteration or epoch: it prints a line and moves the bar.
    """

    def __init__(self, console: Console, total_passes: int | None) -> None:
        self._console = console
        self._total = total_passes
        self._done = 0
        self._start = time.monotonic()
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=console.quiet or not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=total_passes, left="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def begin(self, phase: str) -> None:
        """Name what is being done now."""
        self._bar.update(self._task, description=phase)
        if not self._console.is_terminal:
            self._console.print(phase)

    def say(self, sentence: str | None) -> None:
        """Something that people should know now, if there is anything."""
        if sentence is not None:
            self._console.print(sentence)

    def advance(self, passes: int, line: str = "") -> None:
        """So many images went through a network; say what came of it, how fast, how long still."""
        self._done += passes
        speed = self._done / max(1e-9, time.monotonic() - self._start)
        left = ""
        if self._total is not None:
            left = f"{duration(max(0, self._total - self._done) / speed)} left"
        self._bar.update(self._task, completed=self._done, left=left)
        if line:
            self._console.print(f"{line}   {speed:,.0f} images/s   {left}")


@contextmanager
def counting(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar for images that are being read; to be told how many are done."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} of {task.total:,}"),
        TimeRemainingColumn(),
        console=console,
        disable=console.quiet or not console.is_terminal,
        transient=True,
    )
    if not console.is_terminal:
        console.print(f"{what}: {total:,}")
    task = bar.add_task(what, total=total)
    with bar:
        yield lambda done: bar.update(task, completed=done)


def duration(seconds: float) -> str:
    """As people say it: 45 s, 12 min, 3.5 h, 2.1 days."""
    for unit, length, enough in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < enough:
            return f"{seconds / length:.{1 if unit == 'h' else 0}f} {unit}"
    return f"{seconds / 86_400:.1f} days"
