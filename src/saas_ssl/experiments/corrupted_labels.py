"""Fig. 1: training is fast when the labels are right, and slower the more of them are wrong.

    saas reproduce corrupted-labels --scale laptop --data cifar10-jpeg/train.parquet
        --test cifar10-jpeg/test.parquet --seeds 3 --workers 2

The paper: the training loss of ResNet18 on CIFAR-10 for several shares of corrupted labels, at a
fixed rate of 0.1 without augmentation or weight decay; mean and standard deviation over 3 initial
weights. Left: the loss against the epoch; right: the loss after ten epochs against the share.

Ours (laptop, 5,000 images of CIFAR-10-jpeg, 3 initial weights): it holds. After ten epochs the loss
is 1.10, 1.70, 2.03, 2.21 and 2.27 with 0, 25, 50, 75 and 100 % of the labels corrupted.

Runtime on two cores: smoke 11 s, laptop 5 min. paper: 36 min on one modern GPU, by an estimate.
"""

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.figure import Figure
from torch import Tensor, rand, randint, where

from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.data.splits import keep_labels
from saas_ssl.experiments.experiment import Experiment, Records
from saas_ssl.experiments.plots import curves
from saas_ssl.experiments.protocol import Kind, Protocol, base
from saas_ssl.experiments.speed import training_losses
from saas_ssl.experiments.trial import Case, Cost, Record
from saas_ssl.experiments.verdicts import Verdict, all_positive, effect

SHARES = ("0", "0.25", "0.5", "0.75", "1")
UNIT_OF_TIME = 10  # epochs
_LENGTHS = {"smoke": (200, 10), "grey": (5000, 20), "colour": (5000, 20)}  # rows, epochs
_EPOCHS = 30  # over all rows, in the paper


def protocol(kind: Kind) -> Protocol:
    """The network alone matters, and batches of 100 rows as in the authors' code."""
    return base(kind).changed(batch_size=20 if kind == "smoke" else 100)


def arms(_protocol: Protocol) -> Sequence[str]:
    """Shares of corrupted labels."""
    return SHARES


def corrupted(y: Tensor, share: float, K: int) -> Tensor:
    """Labels of which this share is drawn from all classes alike, so 1 in K of them stays right.

    They are the same in all runs, and those of a smaller share are among those of a larger one.
    """
    place = rand(len(y), generator=generator_at(0, "corrupted rows"))
    drawn = randint(K, (len(y),), generator=generator_at(0, "corrupted labels"))
    return where(place < share, drawn, y)


def run(case: Case, arm: str) -> Record:
    """The loss of each epoch, from the initial weights of this seed."""
    full, (rows, epochs) = case.full, _lengths(case)
    if rows < len(full.y):
        full = full.take(keep_labels(full, rows, generator_at(0, "rows")).labelled_rows)
    y, K = corrupted(full.y, float(arm), full.n_classes), full.n_classes
    settings = case.protocol.settings
    losses = training_losses(full.x, y, K, settings, case.place, case.seed, epochs)
    return {"loss": losses, "wrong": (y != full.y).double().mean().item()}


def _lengths(case: Case) -> tuple[int, int]:
    return _LENGTHS.get(case.protocol.kind, (len(case.full.y), _EPOCHS))


def cost(case: Case, _arm: str) -> Cost:
    """All rows in all epochs."""
    rows, epochs = _lengths(case)
    return Cost(rows * epochs)


def after_ten(records: Records, arm: str) -> dict[int, float]:
    """The loss after the unit of time, for each seed."""
    return {seed: record["loss"][UNIT_OF_TIME - 1] for seed, record in records[arm].items()}


def verdicts(records: Records) -> list[Verdict]:
    """Every share of corrupted labels is slower than the one before."""
    losses = [after_ten(records, arm) for arm in SHARES]
    steps = [min(b[s] - a[s] for a, b in pairwise(losses)) for s in losses[0]]
    whole = [losses[-1][seed] - losses[0][seed] for seed in losses[0]]
    return [
        all_positive(
            "1",
            effect(
                "loss after ten epochs, the smallest rise from one share to the next", steps, "nats"
            ),
            effect("... from no corrupted labels to all", whole, "nats"),
        )
    ]


def draw(figure: Figure, records: Records) -> None:
    """Loss against epoch, and loss after ten epochs against the share of wrong labels."""
    left, right = figure.subplots(1, 2)
    lines = {
        f"{100 * float(arm):g} % corrupted": [r["loss"] for r in records[arm].values()]
        for arm in SHARES
    }
    epochs = len(next(iter(lines.values()))[0])
    curves(left, range(1, epochs + 1), lines)
    left.set(xlabel="epoch", ylabel="training loss")
    wrong = [100 * next(iter(records[arm].values()))["wrong"] for arm in SHARES]
    by_share = [after_ten(records, arm) for arm in SHARES]
    runs = [[share[seed] for share in by_share] for seed in by_share[0]]
    curves(right, wrong, {"": runs}, marker="o")
    right.set(xlabel="wrong labels, %", ylabel=f"training loss after {UNIT_OF_TIME} epochs")


EXPERIMENT = Experiment(__doc__, protocol, arms, run, cost, verdicts, draw, size=(11, 4))
