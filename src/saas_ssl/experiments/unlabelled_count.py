"""Fig. 2 right: the more unlabelled rows, the better the classifier.

    saas reproduce unlabelled-count --scale laptop --data idx:mnist --seeds 5 --workers 2

The paper: test accuracy against the number of unlabelled samples on SVHN with ResNet18, three
labelled sets; it rises all the way. T is the same for all, so that more rows also mean more steps;
on small scales further arms have as many steps for any number of rows.

Ours (laptop, MNIST, 5 labelled sets): undecided. At the same T the test error falls from 63.95 ±
3.55 to 28.11 ± 5.13 and 5.10 ± 0.62 % with 250, 500 and 1,000 rows, because fewer rows make inner
loops of too few steps; with as many steps for all it is 6.76 ± 1.28, 5.78 ± 0.48, 5.10 ± 0.62, 5.63
± 0.37 and 6.42 ± 1.33 % with 250, 500, 1,000, 2,500 and 5,000.

Runtime on two cores: smoke 9 s, laptop 13 min. paper: 78 h (CIFAR-10) or 18 h (SVHN) on one modern
GPU, by an estimate.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import linear_regression
from typing import Any

from matplotlib.figure import Figure

from saas_ssl.experiments.baseline import SAAS, SUPERVISED, cost_of_arm, run_arm
from saas_ssl.experiments.experiment import Experiment, Records
from saas_ssl.experiments.plots import curves
from saas_ssl.experiments.protocol import Kind, Protocol, base
from saas_ssl.experiments.trial import Case, Cost, Record
from saas_ssl.experiments.verdicts import Verdict, all_positive, effect
from saas_ssl.training.problem import Problem

_COUNTS: dict[Kind, tuple[int, ...]] = {
    "smoke": (100, 200, 400),
    "grey": (250, 500, 1000),
    "colour": (1000, 2000, 4000, 8000),
    "cifar10": (5_000, 10_000, 20_000, 46_000),
    "svhn": (5_000, 10_000, 20_000, 40_000, 72_257),
}
SAME_STEPS = "-same-steps"
_WITH_SAME_STEPS: dict[Kind, tuple[int, ...]] = {
    "smoke": (100, 400),
    "grey": (250, 500, 1000, 2500, 5000),
    "colour": (1000, 2000, 4000, 8000),
}


def arms(protocol: Protocol) -> Sequence[str]:
    """Numbers of unlabelled rows; none of them is the supervised baseline."""
    same = [f"{n}{SAME_STEPS}" for n in _WITH_SAME_STEPS.get(protocol.kind, ())]
    return ("0", *(str(n) for n in _COUNTS[protocol.kind]), *same)


def same_steps(protocol: Protocol, n: int) -> dict[str, Any]:
    """Settings for n rows with the steps that the protocol's rows take, and its effective step."""
    own, share = protocol.settings, (protocol.unlabelled or n) / n
    T, epochs = (max(1, round(e * share)) for e in (own.inner_epochs, own.classifier_epochs))
    step = own.posterior_lr * own.inner_epochs / T
    return {"inner_epochs": T, "classifier_epochs": epochs, "posterior_lr": step}


def _problem(case: Case, arm: str) -> Problem:
    n = int(arm.removesuffix(SAME_STEPS))
    if n == 0:  # as the baseline of the tables
        return case.problem()
    return case.problem(n, **(same_steps(case.protocol, n) if SAME_STEPS in arm else {}))


def run(case: Case, arm: str) -> Record:
    """Both phases, or the baseline."""
    return run_arm(case, SUPERVISED if arm == "0" else SAAS, _problem(case, arm))


def cost(case: Case, arm: str) -> Cost:
    """Both phases, or the baseline."""
    return cost_of_arm(SUPERVISED if arm == "0" else SAAS, _problem(case, arm))


def slope(errors: Mapping[int, float]) -> float:
    """By how many points the error falls when the unlabelled rows double: least squares."""
    x, y = [math.log2(n) for n in errors], [100 * error for error in errors.values()]
    return -linear_regression(x, y).slope


def by_count(records: Records, seed: int, ending: str = "") -> dict[int, float]:
    """The test error of this seed for each number of unlabelled rows."""
    counts = {arm: arm.removesuffix(ending) for arm in records if arm.endswith(ending)}
    errors = {int(n): records[arm][seed]["test_error"] for arm, n in counts.items() if n.isdigit()}
    return {n: errors[n] for n in sorted(errors) if n}


def verdicts(records: Records) -> list[Verdict]:
    """The slope at the T of all, and where there are such arms at the same number of steps."""
    names = {
        "": "lower test error for twice as many unlabelled rows",
        SAME_STEPS: "... where any number of rows gets as many steps",
    }
    runs = {end: [by_count(records, seed, end) for seed in records["0"]] for end in names}
    slopes = {end: [slope(errors) for errors in own] for end, own in runs.items() if own[0]}
    return [all_positive("3", *(effect(names[end], falls) for end, falls in slopes.items()))]


def draw(figure: Figure, records: Records) -> None:
    """Test accuracy against the number of unlabelled rows."""
    axes = figure.subplots()
    ticks = set[int]()
    for ending, name in (("", "SaaS"), (SAME_STEPS, "SaaS, the same number of steps")):
        runs = [by_count(records, seed, ending) for seed in records["0"]]
        if x := list(runs[0]):
            accuracies = [[100 - 100 * error for error in run.values()] for run in runs]
            curves(axes, x, {name: accuracies}, marker="o")
            ticks |= set(x)
    x = sorted(ticks)
    baseline = [[100 - 100 * run["test_error"]] * len(x) for run in records["0"].values()]
    curves(axes, x, {"supervised": baseline})
    axes.legend(frameon=False)
    axes.set(xlabel="unlabelled rows", ylabel="test accuracy, %", xscale="log")
    axes.set_xticks(x, [f"{n:,}" for n in x])
    axes.minorticks_off()


EXPERIMENT = Experiment(__doc__, base, arms, run, cost, verdicts, draw)
