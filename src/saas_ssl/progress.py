"""Progress for people: a live bar on a terminal, plain lines elsewhere, silence when quiet."""

import time
from types import TracebackType
from typing import Any, Self

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table


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


def duration(seconds: float) -> str:
    """As people say it: 45 s, 12 min, 3.5 h, 2.1 days."""
    for unit, length, enough in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < enough:
            return f"{seconds / length:.{1 if unit == 'h' else 0}f} {unit}"
    return f"{seconds / 86_400:.1f} days"


def results_table(results: dict[str, Any]) -> Table:
    """The few numbers that tell whether the unlabelled data helped."""
    table = Table("", "error", box=SIMPLE)
    for name, value in (
        ("supervised baseline, test", results["supervised"]["test_error"]),
        ("SaaS, unlabelled set", results["saas"]["unlabelled_error"]),
        ("SaaS, test", results["saas"]["test_error"]),
    ):
        table.add_row(name, "unknown" if value is None else f"{value:.1%}")
    return table
