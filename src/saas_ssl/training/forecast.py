"""How fast this machine is, and how long a run will take."""

import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from typing import Any

import torch

from saas_ssl.algorithm.descent import Descent
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.training.outputs import predict
from saas_ssl.training.pipeline import (
    infer_posterior,
    initial_passes,
    supervised_epochs,
    train_classifier,
)
from saas_ssl.training.presets import Settings
from saas_ssl.training.problem import Problem
from saas_ssl.training.ranks import ALONE
from saas_ssl.training.times import duration

_WARM_UP, _MEASURED = 1, 0.5  # steps, then seconds
AVERAGED_EPOCHS = 5  # of phase two, in the label table


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
