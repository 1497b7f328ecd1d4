"""Fig. 2 right: the more unlabelled rows, the better the classifier.

    saas reproduce unlabelled-count --scale laptop --data idx:mnist --seeds 4 --workers 2

The paper: test accuracy against the number of unlabelled samples on SVHN with ResNet18, three
labelled sets; it rises all the way. On a laptop every number of rows gets as many steps of training
(T and the epochs of phase two fall as N_u rises), so that nothing but the rows differs.
"""

import math
from collections.abc import Sequence
from statistics import linear_regression
from typing import Any

from matplotlib.figure import Figure

from saas_ssl.experiments.experiment import Experiment, Records
from saas_ssl.experiments.plots import curves
from saas_ssl.experiments.protocol import Protocol, base
from saas_ssl.experiments.trial import (
    Case,
    Cost,
    Record,
    cost_of_phase_one,
    cost_of_phase_two,
    cost_of_supervised,
    run_saas,
    run_supervised,
)
from saas_ssl.experiments.verdicts import Verdict, all_positive, by_seed, effect
from saas_ssl.pipeline import Problem

_COUNTS = {
    "smoke": (100, 200, 400),
    "grey": (250, 500, 1000, 2500, 5000),
    "colour": (1000, 2000, 4000, 8000),
    "cifar10": (5_000, 10_000, 20_000, 46_000),
    "svhn": (5_000, 10_000, 20_000, 40_000, 72_257),
}


def arms(protocol: Protocol) -> Sequence[str]:
    """Numbers of unlabelled rows; none of them is the supervised baseline."""
    return ("0", *(str(n) for n in _COUNTS[protocol.kind]))


def lengths(protocol: Protocol, n: int) -> dict[str, Any]:
    """Settings for n rows: as many steps for any n, and the same effective step of P_u."""
    own = protocol.settings
    if protocol.unlabelled is None:  # the paper, by the letter
        return {}
    share = protocol.unlabelled / n
    T, epochs = (max(1, round(e * share)) for e in (own.inner_epochs, own.classifier_epochs))
    step = own.posterior_lr * own.inner_epochs / T
    return {"inner_epochs": T, "classifier_epochs": epochs, "posterior_lr": step}


def _problem(case: Case, arm: str) -> Problem:
    n = int(arm) or _COUNTS[case.protocol.kind][0]
    return case.problem(n, **lengths(case.protocol, n))


def run(case: Case, arm: str) -> Record:
    """Both phases, or the baseline."""
    return (run_saas if int(arm) else run_supervised)(case, _problem(case, arm))


def cost(case: Case, arm: str) -> Cost:
    """Both phases, or the baseline."""
    problem = _problem(case, arm)
    if arm == "0":
        return cost_of_supervised(problem)
    return cost_of_phase_one(problem) + cost_of_phase_two(problem)


def slope(records: Records, seed: int) -> float:
    """By how many points the test error falls when the unlabelled rows double: least squares."""
    counts = [arm for arm in records if int(arm)]
    x = [math.log2(int(arm)) for arm in counts]
    y = [100 * records[arm][seed]["test_error"] for arm in counts]
    return -linear_regression(x, y).slope


def verdicts(records: Records) -> list[Verdict]:
    """The slope, and the whole way from the fewest to the most."""
    first, last = (by_seed(records[arm], "test_error") for arm in _ends(records))
    seeds = sorted(set.intersection(*(set(records[arm]) for arm in records)))
    falls = [slope(records, seed) for seed in seeds]
    whole = [100 * (first[seed] - last[seed]) for seed in seeds]
    return [
        all_positive(
            "3",
            effect("lower test error for twice as many unlabelled rows", falls),
            effect("lower test error with the most unlabelled rows than the fewest", whole),
        )
    ]


def _ends(records: Records) -> tuple[str, str]:
    counts = sorted((arm for arm in records if int(arm)), key=int)
    return counts[0], counts[-1]


def draw(figure: Figure, records: Records) -> None:
    """Test accuracy against the number of unlabelled rows."""
    counts = sorted((arm for arm in records if int(arm)), key=int)
    seeds = sorted(set.intersection(*(set(records[arm]) for arm in records)))
    axes = figure.subplots()
    runs = [[100 - 100 * records[arm][s]["test_error"] for arm in counts] for s in seeds]
    same = [[100 - 100 * records["0"][s]["test_error"]] * len(counts) for s in seeds]
    x = [int(arm) for arm in counts]
    curves(axes, x, {"SaaS": runs, "supervised": same}, marker="o")
    axes.set(xlabel="unlabelled rows", ylabel="test accuracy, %", xscale="log")
    axes.set_xticks(x, [f"{n:,}" for n in x])
    axes.minorticks_off()


EXPERIMENT = Experiment(__doc__, base, arms, run, cost, verdicts, draw)
