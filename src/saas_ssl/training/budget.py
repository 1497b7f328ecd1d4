"""Time: how fast this machine is, how long a run will take, and settings that fit a budget."""

import math
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, TypeVar

import torch

from saas_ssl.algorithm.descent import Descent
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.algorithm.schedules import PEAK, SCHEDULES, Rate
from saas_ssl.progress.display import duration
from saas_ssl.training.pipeline import (
    Problem,
    infer_posterior,
    initial_passes,
    predict,
    supervised_epochs,
    train_classifier,
)
from saas_ssl.training.presets import Settings
from saas_ssl.training.ranks import ALONE, Ranks
from saas_ssl.vision.networks import own_width

Clock = Callable[[], float]
Iteration = TypeVar("Iteration")  # whatever is yielded after an outer iteration

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
    K = problem.data.n_classes
    P_u = torch.full((len(problem.training.unlabelled_rows), K), 1.0 / K)
    one = _seconds_per_step(lambda after: infer_posterior(problem, P_u, after_step=after))
    two = _seconds_per_step(lambda after: train_classifier(problem, P_u, after_step=after))
    return Speed(one / per_step, two / per_step, _seconds_per_prediction(problem))


def _seconds_per_step(run: Callable[[Callable[[Descent], None]], Iterator[Any]]) -> float:
    """The mean of the steps of a second, or of one step, after the first."""
    times = [time.perf_counter()]

    def after_step(_sgd: Descent) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # a GPU works on while the steps are counted
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
    fixed = settings.classifier_schedule != "halving"
    baseline = problem.supervised_passes(supervised_epochs(problem)) * ranks.sharing
    outers = problem.passes(settings.outer_iterations * settings.inner_epochs) * ranks.size
    return {
        "supervised": baseline if fixed else None,
        "one": initial_passes(problem) + outers,
        "two": problem.passes(settings.classifier_epochs) * ranks.sharing if fixed else None,
    }


@dataclass(frozen=True)
class Forecast:
    """How long the parts of a run take on this machine, in seconds."""

    inner_epoch: float  # one epoch of an inner loop
    epoch: float  # one epoch of phase two, or as many image passes of the baseline
    finish: float  # predictions and files at the end
    start: float = 0.0  # the initial posterior, where it is not just drawn

    @classmethod
    def of(cls, problem: Problem, speed: Speed, test_rows: int) -> "Forecast":
        """From measured speeds; image passes of one process, since all work at the same time."""
        held_out = test_rows + len(problem.probe.labelled_rows)
        rows = len(problem.training.unlabelled_rows)
        predictions = (AVERAGED_EPOCHS * rows + 2 * held_out) * speed.forward
        return cls(
            problem.passes() * speed.one,
            problem.passes() * speed.two,
            predictions + 2e-5 * rows + 1.0,
            initial_passes(problem) * speed.two,
        )

    def whole(self, settings: Settings) -> float | None:
        """All of a run with its baseline; unknown if phase two has no set length."""
        if settings.classifier_schedule == "halving":
            return None
        inner_epochs = settings.outer_iterations * settings.inner_epochs
        both = 2 * settings.classifier_epochs * self.epoch
        return self.start + inner_epochs * self.inner_epoch + both + self.finish

    def times(self, factor: float) -> "Forecast":
        """The same on a machine that is so much slower."""
        return Forecast(*(factor * seconds for seconds in astuple(self)))


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
) -> tuple[Problem, Forecast, Settings]:
    """A problem whose run takes the time that is left, the forecast, and the settings unfitted.

    T, M, the epochs of phase two and maybe the width are fitted, but for what is `given`.
    """
    if settings.classifier_schedule == "halving" and "classifier_schedule" not in given:
        settings = settings.changed(classifier_schedule="triangular")  # halving has no set length
    resizable = may_change_width and "width" not in given
    width, narrowed = settings.width or own_width(settings.network), False
    while True:
        problem = prepared(settings)
        forecast = Forecast.of(problem, measure(problem), test_rows)
        seconds = _MARGIN * left()
        least = forecast.start + forecast.inner_epoch + 2 * forecast.epoch + forecast.finish
        if resizable and seconds < least and width > _NARROWEST:
            width, narrowed = width // 2, True
        elif (
            resizable
            and not narrowed
            and width < _WIDEST
            and seconds > _WIDER * (forecast.whole(settings) or math.inf)
        ):
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
    lengths = fitted(settings, forecast, seconds, given, classifiers=2)
    return replace(problem, settings=problem.settings.changed(**lengths)), forecast, settings


def fitted(
    settings: Settings, forecast: Forecast, seconds: float, given: Collection[str], classifiers: int
) -> dict[str, Any]:
    """Longer loops and more of them; in little time fewer loops before shorter ones.

    So many `classifiers` are still to be trained: the one of phase two, and maybe the baseline.
    """
    T, M, E = settings.inner_epochs, settings.outer_iterations, settings.classifier_epochs
    seconds = max(0.0, seconds - forecast.start - forecast.finish)
    share = seconds / (M * T * forecast.inner_epoch + classifiers * E * forecast.epoch)
    if "classifier_epochs" not in given:
        E = max(1, round(E * share))
    epochs = max(0.0, seconds - classifiers * E * forecast.epoch) / forecast.inner_epoch
    if "inner_epochs" not in given:
        T = max(1, min(round(T * max(1.0, math.sqrt(share))), int(epochs / 2)))
    lengths: dict[str, Any] = {"inner_epochs": T, "classifier_epochs": E}
    if "outer_iterations" not in given:
        lengths["outer_iterations"] = max(1, int(epochs / T))
    if "posterior_lr" not in given:  # the same effective step
        lengths["posterior_lr"] = settings.posterior_lr * settings.inner_epochs / T
    return lengths


def with_lengths(
    problem: Problem, forecast: Forecast, budget: float, unit: str, given: Collection[str] = ()
) -> Problem:
    """The same with T, M and epochs of phase two that spend the budget, in units of the forecast.

    The shares of both phases and the effective step stay as they were, and so does what is `given`.
    No baseline is trained.
    """
    least = forecast.start + forecast.inner_epoch + forecast.epoch + forecast.finish
    if budget < least:
        digits = 1 if unit == "seconds" else 0
        raise ValueError(
            f"the budget is too short for SaaS: an epoch of each phase takes {least:,.{digits}f} "
            f"{unit}, and {max(0.0, budget):,.{digits}f} are left"
        )
    lengths = fitted(problem.settings, forecast, budget, given, classifiers=1)
    return replace(problem, settings=problem.settings.changed(**lengths))


class Deadline:
    """The end of a budget, and what it means for both phases while they go on.

    Phase two takes all the time that phase one leaves, which should be most of what was planned.
    Only the clock of rank 0 counts.
    """

    def __init__(
        self,
        left: Clock,
        forecast: Forecast,
        unfitted: Settings,
        given: Collection[str],
        ranks: Ranks,
    ) -> None:
        self.decides_outer_iterations = "outer_iterations" not in given
        self._left, self._forecast, self._given = left, forecast, given
        self._unfitted, self._ranks = unfitted, ranks
        self._took, self._began = 0.0, left()

    def refit(self, settings: Settings, baseline_seconds: float) -> dict[str, Any]:
        """Settings for the time that is left, by the speed at which the baseline was trained."""
        forecast = max(1e-9, settings.classifier_epochs * self._forecast.epoch)
        self._forecast = self._forecast.times(max(0.1, baseline_seconds / forecast))
        return fitted(
            self._unfitted, self._forecast, _MARGIN * self._left(), self._given, classifiers=1
        )

    def begin_outer(self) -> None:
        """An outer iteration begins."""
        self._began = self._left()

    def end_outer(self, settings: Settings) -> None:
        """It has ended: so long will the next ones take, and so slow will phase two be."""
        self._took = max(1e-9, self._began - self._left())
        expected = max(1e-9, settings.inner_epochs * self._forecast.inner_epoch)
        self._forecast = self._forecast.times(max(0.1, self._took / expected))

    def more(self, settings: Settings) -> int:
        """How many outer iterations still fit."""
        took = self._took or settings.inner_epochs * self._forecast.inner_epoch
        phase_two = settings.classifier_epochs * self._forecast.epoch
        return max(0, int((self._left() - 0.8 * phase_two - self._forecast.finish) / took))

    def goes_on(self, settings: Settings) -> bool:
        """Whether rank 0 has time for another outer iteration; all ranks must ask."""
        return bool(self._ranks.from_first(torch.tensor(self.more(settings))))

    def rate(self, settings: Settings, done: int) -> Rate:
        """The learning rate of phase two by the clock: its schedule ends when time does.

        If so many epochs are `done` by an earlier process, it goes on at the highest rate.
        """
        start, schedule = self._left(), SCHEDULES[settings.classifier_schedule]
        total = max(start - self._forecast.finish, self._forecast.epoch)

        def own_rate(scores: Sequence[float]) -> float:
            spent, n = start - self._left(), len(scores) - done
            epoch = spent / n if n else self._forecast.epoch
            if scores and total - spent < 0.5 * epoch:
                return 0.0
            time = min(0.99, (spent + 0.5 * epoch) / total)
            return settings.classifier_lr * schedule(max(time, PEAK) if done else time)

        def rate(scores: Sequence[float]) -> float:
            if not self._ranks.shares_rows:
                return own_rate(scores)
            own = torch.tensor(own_rate(scores), dtype=torch.float64)
            return float(self._ranks.from_first(own))

        return rate

    def epochs(self) -> int:
        """How many epochs of phase two fit into the time that is left."""
        return max(1, round((self._left() - self._forecast.finish) / self._forecast.epoch))


def within(
    outers: Iterator[Iteration], deadline: Deadline | None, settings: Settings, done: int = 0
) -> Iterator[Iteration]:
    """The outer iterations after the `done` ones, as many as the deadline allows, if there is one.

    The first of all is always allowed.
    """
    while True:
        if deadline is not None:
            if deadline.decides_outer_iterations and done and not deadline.goes_on(settings):
                return
            deadline.begin_outer()
        outer = next(outers, None)
        if outer is None:
            return
        if deadline is not None:
            deadline.end_outer(settings)
        yield outer
        done += 1
