"""Progress for people: a live view on a terminal, plain lines elsewhere, silence when quiet."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from saas_ssl.training.times import duration

PARTS = {
    "supervised": "supervised baseline",
    "one": "phase one: labels",
    "two": "phase two: classifier",
}
"""The parts of a run in order, as people know them."""

Clock = Callable[[], float]


class Display:
    """Counts image passes through networks, the unit in which every part takes about equally long.

    `plan` holds the image passes of each part, None where nobody knows how long it will take, and
    `processes` says how many work on a part at the same time, if more than one do.
    """

    def __init__(
        self,
        console: Console,
        plan: Mapping[str, int | None],
        clock: Clock = time.monotonic,
        processes: Mapping[str, int] | None = None,
    ) -> None:
        self._processes = dict.fromkeys(plan, 1) | dict(processes or {})
        self._console, self._clock = console, clock
        self._plan, self._done = dict(plan), dict.fromkeys(plan, 0.0)
        self._part = next(iter(plan))
        self._speed = Speed(clock)
        self._losses: list[float] = []
        self._now, self._learning = "", ""  # the last epoch or outer iteration; all of the latter
        # Rich draws nothing on a dumb terminal, which must not leave people without any sign; and
        # on a quiet console it would swallow what others print.
        draws = console.is_terminal and not console.is_dumb_terminal and not console.quiet
        self._live = self._new_live() if draws else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, part: str) -> None:
        """A part begins, and so those before it have ended."""
        for earlier in self._plan:
            if earlier == part:
                break
            self._plan[earlier] = round(self._done[earlier])  # it took what it took
        self._part, self._now, self._speed = part, "", Speed(self._clock)
        if self._live is None:
            self._console.print(PARTS[part])

    def resume(self, part: str, passes: int) -> None:
        """An earlier process did so many image passes of this part: done, but not by our speed."""
        self._done[part] += passes

    def replan(self, part: str, passes: int | None) -> None:
        """The part will now take this many image passes in all."""
        self._plan[part] = passes

    def step(self, passes: float) -> None:
        """So many images went through a network; cheap, for the view is drawn in its own time."""
        self._done[self._part] += passes
        self._speed.add(passes)

    def outer(self, m: int, M: int, cumulative_loss: float, changed: float) -> None:
        """An outer iteration has ended."""
        self._losses.append(cumulative_loss)
        bars = "" if self._console.options.ascii_only else f"{sparkline(self._losses[-40:])} "
        self._now = f"outer {m + 1}/{M}"
        self._learning = f"cumulative loss {bars}{cumulative_loss:.3f}   changed {changed:.1%}"
        if self._live is None:
            line = (
                f"outer {m + 1:>3}/{M}   cumulative loss {cumulative_loss:.3f}   "
                f"changed {changed:6.1%}   {self._pace()}"
            )
            self._console.print(line, soft_wrap=True)

    def epoch(self, n: int, score: float) -> None:
        """An epoch of the baseline or of phase two has ended."""
        self._now = f"epoch {n + 1}, score {score:.3f}"

    def say(self, sentence: str | None) -> None:
        """Something that people should know now, if there is anything."""
        if sentence is not None:
            self._console.print(sentence)

    def _pace(self) -> str:
        """How fast it goes, and how long the whole run still takes as far as that is known."""
        speed, totals = self._speed.per_second, self._plan.values()
        left = sum(  # of one process
            max(0, total - self._done[part]) / self._processes[part]
            for part, total in self._plan.items()
            if total
        )
        at_least = "over " if None in totals else ""
        pace = f"{speed:,.0f} images/s"
        if speed == 0 or (at_least and not left):
            return pace
        seconds = left * self._processes[self._part] / speed
        return f"{pace}   {at_least}{duration(seconds)} left"

    def _new_live(self) -> Live:
        return Live(
            get_renderable=self._view, console=self._console, refresh_per_second=4, transient=True
        )

    def _view(self) -> Group:
        """All parts, how it goes, and how fast the networks learn; drawn by a thread of rich."""
        bars = Table.grid(padding=(0, 2))
        for part, total in self._plan.items():
            done, waits = self._done[part], total is None and part != self._part
            bar = ProgressBar(1 if waits else total, done, width=30)
            of = "" if total is None else f" of {max(done, total):,.0f}"
            bars.add_row(PARTS[part], bar, f"{done:,.0f}{of}")
        lines = (f"{self._pace()}   {self._now}", self._learning)
        return Group(bars, *(Text(line, no_wrap=True) for line in lines))


class Speed:
    """Image passes per second over about the last half minute."""

    def __init__(self, clock: Clock, window: float = 30.0) -> None:
        self._clock, self._window = clock, window
        self._last = (clock(), 0.0)
        self._marks = deque([self._last])  # about one a second; the first is where to count from

    def add(self, passes: float) -> None:
        """So many more, until now."""
        now = self._clock()
        self._last = (now, self._last[1] + passes)
        if now - self._marks[-1][0] >= 1:
            self._marks.append(self._last)
            while self._marks[1][0] <= now - self._window:
                self._marks.popleft()

    @property
    def per_second(self) -> float:
        """0 before anything was counted."""
        (start, before), (now, passes) = self._marks[0], self._last
        return (passes - before) / (now - start) if now > start else 0.0


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


def sparkline(values: Sequence[float]) -> str:
    """The values as bars from the lowest to the highest of them; a dot where one is not finite."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    step = (high - low) / 7 or 1.0
    return "".join(
        "▁▂▃▄▅▆▇█"[round((value - low) / step)] if math.isfinite(value) else "·" for value in values
    )
