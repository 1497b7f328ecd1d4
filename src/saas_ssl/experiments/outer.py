"""What the figures over outer iterations share: phase one alone, and the accuracy of its labels."""

from collections.abc import Mapping
from statistics import mean

from matplotlib.figure import Figure

from saas_ssl.experiments.experiment import Records
from saas_ssl.experiments.plots import curves
from saas_ssl.experiments.trial import Case, Record, infer
from saas_ssl.experiments.verdicts import by_seed
from saas_ssl.training.problem import Problem

FIRST_EPOCH = 5  # of the paper's plots


def run_phase_one(case: Case, problem: Problem) -> Record:
    """Phase one, and how far one outer iteration moves P_u."""
    return {**infer(case, problem).record(), "effective_step": problem.effective_step}


def error_of(records: Records, arm: str) -> dict[int, float]:
    """The share of wrong labels after the last outer iteration, for each seed."""
    return by_seed(records[arm], "unlabelled_error")


def mean_error(records: Records, arm: str) -> dict[int, float]:
    """The same on average over the outer iterations that are plotted."""
    return {
        seed: 1 - mean(record["accuracy"][first_plotted(len(record["accuracy"])) - 1 :])
        for seed, record in records[arm].items()
    }


def first_plotted(last: int) -> int:
    """Where a plot that ends with this outer iteration begins: at the fifth, if there are many."""
    return FIRST_EPOCH if last > 2 * FIRST_EPOCH else 1


def draw_accuracy(figure: Figure, records: Records, names: Mapping[str, str]) -> None:
    """Accuracy on the unlabelled rows against the outer epoch, like the paper from the fifth on."""
    lines = {
        name: [[100 * a for a in r["accuracy"]] for r in records[arm].values()]
        for arm, name in names.items()
    }
    last = len(next(iter(lines.values()))[0])
    first = first_plotted(last)
    axes = figure.subplots()
    kept = {name: [run[first - 1 :] for run in runs] for name, runs in lines.items()}
    curves(axes, range(first, last + 1), kept)
    axes.set(xlabel="outer epoch", ylabel="accuracy on the unlabelled rows, %")
