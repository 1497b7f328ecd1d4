"""Time: how fast this machine is, how long a run will take, and settings that fit a budget."""

import math
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from saas_ssl.descent import Descent
from saas_ssl.networks import own_width
from saas_ssl.pipeline import (
    Problem,
    infer_posterior,
    initial_posterior,
    predict,
    supervised_epochs,
    train_classifier,
)
from saas_ssl.presets import Settings
from saas_ssl.progress import duration
from saas_ssl.randomness import generator_at
from saas_ssl.schedules import SCHEDULES, Rate
from saas_ssl.workers import ALONE, Ranks

Clock = Callable[[], float]

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_WARM_UP, _MEASURED = 1, 0.5  # steps, then seconds
AVERAGED_EPOCHS = 5  # of phase two, in the label table
ENDLESS = 1_000_000  # outer iterations, where a deadline ends them
_MARGIN = 0.97  # of the budget is planned for: ends are late more often than early
_WIDER, _WIDEST, _NARROWEST = 8.0, 64, 4


def seconds_of(text: str) -> float:
    """90s, 20m, 1.5h or 2d -> seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)", text.strip())
    if match is None or float(match[1]) == 0:
        raise ValueError(f"{text!r} is not a length of time such as 90s, 20m, 1.5h or 2d")
    return float(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True)
class Speed:
    """Seconds per image, as measured here."""

    one: float  # a pass in phase one
    two: float  # a pass in phase two, and in the baseline
    forward: float  # a prediction


class _EnoughError(Exception):
    pass


def measure(problem: Problem) -> Speed:
    """Time some steps of each phase on the real network and data, of this process alone."""
    problem = replace(problem, data=problem.training, ranks=ALONE)
    per_step = problem.passes() / problem.steps
    P_u = initial_posterior(problem)
    one = _seconds_per_step(lambda after: infer_posterior(problem, P_u, after_step=after))
    two = _seconds_per_step(lambda after: train_classifier(problem, P_u, after_step=after))
    return Speed(one / per_step, two / per_step, _seconds_per_prediction(problem))


def _seconds_per_step(run: Callable[[Callable[[Descent], None]], Iterator[Any]]) -> float:
    """The mean of the steps of a second, or of one step, after the first."""
    times = [time.perf_counter()]

    def after_step(_sgd: Descent) -> None:
        times.append(time.perf_counter())
        if len(times) > _WARM_UP + 1 and times[-1] - times[_WARM_UP] > _MEASURED:
            raise _EnoughError

    try:
        for _ in run(after_step):
            pass  # too short to be worth measuring longer
    except _EnoughError:
        pass
    used = times[_WARM_UP:] if len(times) > _WARM_UP + 1 else times
    return (used[-1] - used[0]) / max(1, len(used) - 1)


def _seconds_per_prediction(problem: Problem) -> float:
    data = problem.training
    rows = data.rows[:512]
    network = problem.new_network(generator_at(problem.seed, "trial"))
    predict(network, problem.preprocessing, data.x, rows[:32])
    start = time.perf_counter()
    predict(network, problem.preprocessing, data.x, rows)
    return (time.perf_counter() - start) / len(rows)


def planned_passes(problem: Problem) -> dict[str, int | None]:
    """Image passes of each part of a run, all processes together; none where nobody knows."""
    settings, ranks = problem.settings, problem.ranks
    sharing = ranks.size if ranks.shares_rows else 1
    fixed = settings.classifier_schedule != "halving"
    baseline = problem.supervised_passes(supervised_epochs(problem)) * sharing
    return {
        "supervised": baseline if fixed else None,
        "one": problem.passes(settings.outer_iterations * settings.inner_epochs) * ranks.size,
        "two": problem.passes(settings.classifier_epochs) * sharing if fixed else None,
    }


@dataclass(frozen=True)
class Forecast:
    """How long the parts of a run take on this machine, in seconds."""

    outer: float  # one outer iteration
    epoch: float  # one epoch of phase two
    finish: float  # predictions and files at the end

    @classmethod
    def of(cls, problem: Problem, speed: Speed, test_rows: int) -> "Forecast":
        """From measured speeds; image passes of one process, since all work at the same time."""
        held_out = test_rows + len(problem.probe.labelled_rows)
        rows = len(problem.training.unlabelled_rows)
        return cls(
            problem.passes(problem.settings.inner_epochs) * speed.one
            + len(problem.probe.labelled_rows) * speed.forward,
            problem.passes() * speed.two,
            (AVERAGED_EPOCHS * rows + 2 * held_out) * speed.forward + 1.0 + 2e-5 * rows,
        )

    def whole(self, settings: Settings) -> float | None:
        """All of a run with its baseline; unknown if phase two has no set length."""
        if settings.classifier_schedule == "halving":
            return None
        both = 2 * settings.classifier_epochs * self.epoch
        return settings.outer_iterations * self.outer + both + self.finish


def in_words(seconds: float | None, processes: int, budget: float | None) -> str:
    """What to expect, before a run starts."""
    if budget is not None:
        return f"Fitted to {duration(budget)} in all, by the speed of {_processes(processes)} here."
    if seconds is None:
        return "How long this takes cannot be said: phase two ends when its score has stalled."
    words = (
        f"This will take about {duration(seconds)} with {_processes(processes)} on this machine."
    )
    if seconds > 86_400:
        return f"{words} That is days: --budget 8h would fit the run to eight hours."
    return words


def _processes(n: int) -> str:
    return "one process" if n == 1 else f"{n} processes"


def fit(
    prepared: Callable[[Settings], Problem],
    settings: Settings,
    given: Collection[str],
    may_change_width: bool,
    left: Clock,
    test_rows: int,
) -> tuple[Problem, Forecast]:
    """A problem whose run takes the time that is left: T, M, epochs and maybe the width fitted.

    What is `given` stays. `left` says how many seconds there are.
    """
    if settings.classifier_schedule == "halving" and "classifier_schedule" not in given:
        settings = settings.changed(classifier_schedule="triangular")  # halving has no set length
    resizable = may_change_width and "width" not in given
    width, narrowed = settings.width or own_width(settings.network), False
    while True:
        problem = prepared(settings)
        forecast = Forecast.of(problem, measure(problem), test_rows)
        seconds = _MARGIN * left()
        epochs = settings.inner_epochs
        least = forecast.outer / epochs + 2 * forecast.epoch + forecast.finish
        usual = settings.outer_iterations * forecast.outer
        usual += 2 * settings.classifier_epochs * forecast.epoch
        if resizable and seconds < least and width > _NARROWEST:
            width, narrowed = width // 2, True
        elif resizable and not narrowed and seconds > _WIDER * usual and width < _WIDEST:
            width *= 2
        else:
            break
        settings = settings.changed(width=width)
    if seconds < least:
        raise ValueError(
            f"the budget is too short: one outer iteration of one epoch, a classifier and its "
            f"baseline take about {duration(least)} on top of what has passed; give more time, or "
            "fewer rows"
        )
    fitted = _fitted(settings, forecast, seconds - forecast.finish, usual, given)
    problem = replace(problem, settings=problem.settings.changed(**fitted))
    T = problem.settings.inner_epochs
    return problem, replace(forecast, outer=forecast.outer * T / epochs)


def _fitted(
    settings: Settings, forecast: Forecast, seconds: float, usual: float, given: Collection[str]
) -> dict[str, Any]:
    """Longer loops and more of them; in little time fewer loops before shorter ones."""
    share, T_0 = seconds / usual, settings.inner_epochs
    E = settings.classifier_epochs
    if "classifier_epochs" not in given:
        E = max(1, round(E * share))
    rest, epoch = seconds - 2 * E * forecast.epoch, forecast.outer / T_0
    T = T_0 if "inner_epochs" in given else max(1, round(T_0 * max(1.0, math.sqrt(share))))
    if "inner_epochs" not in given and rest < 2 * T * epoch:
        T = max(1, int(rest / (2 * epoch)))
    M = max(1, int(rest / (T * epoch)))
    fitted: dict[str, Any] = {"inner_epochs": T, "classifier_epochs": E}
    if "outer_iterations" not in given:
        fitted["outer_iterations"] = M
    if "posterior_lr" not in given:  # the same effective step
        fitted["posterior_lr"] = settings.posterior_lr * T_0 / T
    return fitted


class Deadline:
    """The end of a budget, and what it means for both phases while they go on.

    Phase two takes all the time that phase one leaves, which should be most of what was planned.
    """

    def __init__(
        self,
        left: Clock,
        forecast: Forecast,
        settings: Settings,
        ranks: Ranks,
        decides_outer_iterations: bool,
    ) -> None:
        self._ranks = ranks
        self.decides_outer_iterations = decides_outer_iterations
        self._left, self._forecast, self._settings = left, forecast, settings
        self._took, self._marked = forecast.outer, left()

    def end_outer(self) -> None:
        """An outer iteration has ended: what it took is what the next will take."""
        now = self._left()
        self._took, self._marked = max(1e-9, self._marked - now), now

    def more(self) -> int:
        """How many outer iterations still fit."""
        planned = 0.8 * self._settings.classifier_epochs * self._forecast.epoch
        reserve = self._slowness * (planned + self._forecast.finish)
        return max(0, int((self._left() - reserve) / self._took))

    def goes_on(self) -> bool:
        """Whether rank 0 has time for another outer iteration; all ranks must ask."""
        return bool(self._ranks.from_first(torch.tensor(self.more())))

    def rate(self) -> Rate:
        """The learning rate of phase two by the clock: its schedule ends when time does."""
        start, settings = self._left(), self._settings
        schedule, total = SCHEDULES[settings.classifier_schedule], start - self._finish
        total = max(total, self._forecast.epoch)

        def rate(scores: Sequence[float]) -> float:
            return self._from_first(own_rate(scores))

        def own_rate(scores: Sequence[float]) -> float:
            done = start - self._left()
            epoch = done / len(scores) if scores else self._slowness * self._forecast.epoch
            if scores and total - done < 0.5 * epoch:
                return 0.0
            return settings.classifier_lr * schedule(min(0.99, (done + 0.5 * epoch) / total))

        return rate

    def _from_first(self, rate: float) -> float:
        """Ranks that take the same steps do so at the rate of rank 0, whose clock counts."""
        if not self._ranks.shares_rows:
            return rate
        return float(self._ranks.from_first(torch.tensor(rate, dtype=torch.float64)))

    def epochs(self) -> int:
        """How many epochs of phase two fit into the time that is left."""
        time = self._left() - self._finish
        return max(1, round(time / (self._slowness * self._forecast.epoch)))

    @property
    def _slowness(self) -> float:
        return max(0.1, self._took / self._forecast.outer)

    @property
    def _finish(self) -> float:
        return self._slowness * self._forecast.finish
