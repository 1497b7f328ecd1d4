"""Text, section 4: SaaS needs augmentation.

    saas reproduce no-augmentation --scale laptop --data idx:mnist --seeds 5 --workers 2

The paper: "our method requires some data augmentation"; "performance suffers in the absence of any
augmentation". The baselines are trained as well, to tell what SaaS loses from what any classifier
loses.

Ours (laptop, MNIST, 5 labelled sets): it holds, test error 6.01 ± 0.70 % without and 5.10 ± 0.62 %
with augmentation. The baseline suffers far more: 24.82 ± 5.28 and 7.97 ± 0.88 %.

Runtime on two cores: smoke 8 s, laptop 6 min. paper: 89 h (CIFAR-10) or 18 h (SVHN) on one modern
GPU, by an estimate.
"""

from collections.abc import Sequence

from matplotlib.figure import Figure

from saas_ssl.experiments.baseline import SAAS, SUPERVISED, cost_of_arm, run_arm
from saas_ssl.experiments.experiment import Experiment, Records
from saas_ssl.experiments.plots import columns
from saas_ssl.experiments.protocol import Protocol, base
from saas_ssl.experiments.trial import Case, Cost, Record
from saas_ssl.experiments.verdicts import Effect, Verdict, all_positive, by_seed, lower_by
from saas_ssl.training.problem import Problem

WITH, WITHOUT = "augmented", "plain"
ARMS = tuple(f"{arm}-{how}" for arm in (SUPERVISED, SAAS) for how in (WITH, WITHOUT))


def arms(_protocol: Protocol) -> Sequence[str]:
    """The baseline and SaaS, with and without augmentation."""
    return ARMS


def _problem(case: Case, arm: str) -> Problem:
    if arm.endswith(WITH):
        return case.problem()
    return case.problem(augmentation="none", classifier_augmentation="none")


def run(case: Case, arm: str) -> Record:
    """The baseline, or both phases."""
    return run_arm(case, arm.partition("-")[0], _problem(case, arm))


def cost(case: Case, arm: str) -> Cost:
    """The baseline, or both phases."""
    return cost_of_arm(arm.partition("-")[0], _problem(case, arm))


def verdicts(records: Records) -> list[Verdict]:
    """What SaaS loses without augmentation."""
    errors = {arm: by_seed(records[arm], "test_error") for arm in records}

    def gain(arm: str, other: str, what: str) -> Effect:
        return lower_by(f"lower test error {what}", errors[arm], errors[other])

    supervised, supervised_plain, saas, saas_plain = ARMS
    return [
        all_positive(
            "6",
            gain(saas_plain, saas, "of SaaS with augmentation than without"),
            also=[
                gain(
                    supervised_plain, supervised, "of the baseline with augmentation than without"
                ),
                gain(supervised, saas, "of SaaS than of the baseline, both with augmentation"),
                gain(supervised_plain, saas_plain, "of SaaS than of the baseline, both without"),
            ],
        )
    ]


def draw(figure: Figure, records: Records) -> None:
    """Test errors of all four."""
    names = {SUPERVISED: "supervised", SAAS: "SaaS"}
    columns(
        figure.subplots(),
        {
            title: {
                name: list(by_seed(records[f"{arm}-{how}"], "test_error").values())
                for arm, name in names.items()
            }
            for how, title in ((WITH, "with augmentation"), (WITHOUT, "without"))
        },
    )


EXPERIMENT = Experiment(__doc__, base, arms, run, cost, verdicts, draw)
