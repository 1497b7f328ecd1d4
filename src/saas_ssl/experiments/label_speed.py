"""Fig. 5 left: the later the pseudo-labels, the faster a network trains on them.

    saas reproduce label-speed --scale laptop --data idx:mnist --seeds 5 --workers 2

The paper: training loss of a network on the labels that SaaS has found after M outer iterations,
for several M, from the second epoch on; later labels train faster.

Ours (laptop, MNIST, 5 labelled sets): it holds. The mean loss of epochs 2 to 10 is 1.52, 0.59,
0.35, 0.32, 0.31 and 0.31 on the labels after 1, 2, 5, 10, 20 and 30 outer iterations.

Runtime on two cores: smoke 7 s, laptop 6 min. paper: 9.4 h (CIFAR-10) or 2.2 h (SVHN) on one modern
GPU, by an estimate.
"""

from collections.abc import Sequence
from statistics import mean

from matplotlib.figure import Figure

from saas_ssl.experiments.experiment import Experiment, Records
from saas_ssl.experiments.plots import curves
from saas_ssl.experiments.protocol import Protocol, many_outer
from saas_ssl.experiments.speed import training_losses
from saas_ssl.experiments.statistics import rank_agreement
from saas_ssl.experiments.trial import Case, Cost, Record, cost_of_phase_one, infer
from saas_ssl.experiments.verdicts import Verdict, all_positive, effect

_EPOCHS, _SHORT = 10, 4
FIRST_EPOCH = 2  # that is plotted, and counts


def arms(_protocol: Protocol) -> Sequence[str]:
    """One run of phase one has the labels of all M."""
    return ("saas",)


def moments(M: int) -> list[int]:
    """After which outer iterations the labels are tried: 1, 2, 5, 10, 20, ... and the last."""
    steps = [n * 10**power for power in range(4) for n in (1, 2, 5)]
    return sorted({m for m in steps if m < M} | {M})


def _epochs(case: Case) -> int:
    return _SHORT if case.protocol.kind == "smoke" else _EPOCHS


def run(case: Case, _arm: str) -> Record:
    """Phase one, then a fresh network, the same for all, on the labels after each M."""
    problem = case.problem()
    inferred = infer(case, problem, snapshots=moments(problem.settings.outer_iterations))
    x, K = problem.data.x[problem.data.unlabelled_rows], problem.data.n_classes
    losses = {
        str(m): training_losses(x, y, K, problem.settings, case.place, case.seed, _epochs(case))
        for m, y in sorted(inferred.labels.items())
    }
    return {**inferred.record(), "loss": losses}


def cost(case: Case, _arm: str) -> Cost:
    """Phase one, and the trainings after it."""
    problem = case.problem()
    trainings = len(moments(problem.settings.outer_iterations)) * _epochs(case)
    rows = len(problem.data.unlabelled_rows)
    return cost_of_phase_one(problem) + Cost(trainings * rows)


def early_loss(losses: Sequence[float]) -> float:
    """The area under the learning curve, from the second epoch on."""
    return mean(losses[FIRST_EPOCH - 1 :])


def verdicts(records: Records) -> list[Verdict]:
    """The area under the learning curve falls with M."""
    runs = [
        [early_loss(losses) for _, losses in sorted(_by_moment(record).items())]
        for record in records["saas"].values()
    ]
    return [
        all_positive(
            "4",
            effect(
                "lower mean loss on the last labels than on the first",
                [r[0] - r[-1] for r in runs],
                "nats",
            ),
            effect(
                "agreement of the losses with the order of M",
                [-rank_agreement(r) for r in runs],
                "(Kendall's τ)",
            ),
        )
    ]


def _by_moment(record: Record) -> dict[int, list[float]]:
    return {int(m): losses for m, losses in record["loss"].items()}


def draw(figure: Figure, records: Records) -> None:
    """Training loss against epoch, one line for each M."""
    runs = [_by_moment(record) for record in records["saas"].values()]
    lines = {f"M = {m}": [run[m][FIRST_EPOCH - 1 :] for run in runs] for m in sorted(runs[0])}
    axes = figure.subplots()
    last = FIRST_EPOCH + len(next(iter(lines.values()))[0])
    curves(axes, range(FIRST_EPOCH, last), lines)
    axes.set(xlabel="epoch", ylabel="training loss on the pseudo-labels")


EXPERIMENT = Experiment(__doc__, many_outer, arms, run, cost, verdicts, draw)
