"""Settings that fit a budget, and its end while a run goes on."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch

from saas_ssl.algorithm.schedules import PEAK, SCHEDULES, Rate
from saas_ssl.training.forecast import Forecast, measure
from saas_ssl.training.presets import Settings
from saas_ssl.training.problem import Problem
from saas_ssl.training.ranks import Ranks
from saas_ssl.training.times import duration
from saas_ssl.vision.networks import own_width

Clock = Callable[[], float]
Iteration = TypeVar("Iteration")  # whatever is yielded after an outer iteration

ENDLESS = 1_000_000  # outer iterations, where a deadline ends them
_MARGIN = 0.97  # of the budget is planned for: ends are late more often than early
_WIDER, _WIDEST, _NARROWEST = 8.0, 64, 4


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
