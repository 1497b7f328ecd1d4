"""What the paper's two tables of SaaS share: the baseline, and SaaS on the same labels."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from saas_ssl.experiments.experiment import Records
from saas_ssl.experiments.plots import columns
from saas_ssl.experiments.protocol import Protocol
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
from saas_ssl.experiments.verdicts import Verdict, all_positive, by_seed, lower_by
from saas_ssl.training.problem import Problem

SUPERVISED, SAAS = "supervised", "saas"


def arms(_protocol: Protocol) -> Sequence[str]:
    """The baseline, and SaaS."""
    return (SUPERVISED, SAAS)


def run(case: Case, arm: str) -> Record:
    """The baseline, or both phases."""
    return run_arm(case, arm, case.problem())


def run_arm(case: Case, arm: str, problem: Problem) -> Record:
    """The baseline, or both phases, on this problem."""
    return (run_supervised if arm == SUPERVISED else run_saas)(case, problem)


def cost(case: Case, arm: str) -> Cost:
    """The baseline, or both phases."""
    return cost_of_arm(arm, case.problem())


def cost_of_arm(arm: str, problem: Problem) -> Cost:
    """The baseline, or both phases, on this problem."""
    if arm == SUPERVISED:
        return cost_of_supervised(problem)
    return cost_of_phase_one(problem) + cost_of_phase_two(problem)


def errors_of(records: Records) -> dict[str, list[float]]:
    """The rows of the paper's tables."""
    return {
        "supervised, test": list(by_seed(records[SUPERVISED], "test_error").values()),
        "SaaS, unlabelled rows": list(by_seed(records[SAAS], "unlabelled_error").values()),
        "SaaS, test": list(by_seed(records[SAAS], "test_error").values()),
    }


def verdicts(records: Records) -> list[Verdict]:
    """The test error of both."""
    errors = [by_seed(records[arm], "test_error") for arm in (SUPERVISED, SAAS)]
    return [all_positive("7", lower_by("lower test error of SaaS than of its baseline", *errors))]


def draw_table(
    figure: Figure, records: Records, paper: Mapping[str, Mapping[str, Sequence[float]]]
) -> None:
    """Our errors beside those of the paper, which are on other data unless said otherwise."""
    axes = figure.subplots()
    columns(axes, {"ours": errors_of(records), **paper})
