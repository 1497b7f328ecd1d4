"""What is said of each label: accept, review or outlier, and the reason."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from saas_ssl.algorithm.partially_labelled import UNLABELLED, PartiallyLabelled

ACCEPT_FROM = 0.95
ACCEPT, REVIEW, OUTLIER = "accept", "review", "outlier"


class LabelRow(NamedTuple):
    """One line of labels.csv."""

    id: str
    label: str
    probability: float
    source: str  # given or inferred
    decision: str  # accept, review or outlier
    runner_up: str
    runner_up_probability: float
    reason: str = ""  # of a decision that probability alone does not explain


class Suspect(NamedTuple):
    """A given label that looks wrong."""

    probability: float  # that it is right after all
    rival: int  # the class that the row looks like
    rival_probability: float


def label_rows(
    data: PartiallyLabelled,
    inferred: Tensor,
    f: Tensor,
    accept: float = ACCEPT_FROM,
    outliers: Tensor | None = None,
    suspects: Mapping[int, Suspect] | None = None,
) -> Iterator[LabelRow]:
    """One row per row of the data that is not set aside, in order.

    `inferred` (N_u,) are the labels of the unlabelled rows, `f` (N_u, K) the probabilities of their
    classes, `outliers` (N_u,) whether they look like none; `suspects` are by the number of the row.
    """
    ids = [data.ids[row] for row in data.unlabelled_rows.tolist()]
    unlabelled = inferred_rows(ids, data.classes, inferred, f, accept, outliers)
    for row, y in zip(data.rows.tolist(), data.y[data.rows].tolist(), strict=True):
        if y == UNLABELLED:
            yield next(unlabelled)
        elif suspects and row in suspects:
            yield _suspect_row(data.ids[row], data.classes, y, suspects[row])
        else:
            yield LabelRow(data.ids[row], data.classes[y], 1.0, "given", ACCEPT, "", 0.0)


def _suspect_row(id_: str, classes: Sequence[str], y: int, suspect: Suspect) -> LabelRow:
    rival, p = classes[suspect.rival], suspect.rival_probability
    reason = f"given as {classes[y]} but without this label it looks like {rival} ({p:.0%})"
    return LabelRow(id_, classes[y], suspect.probability, "given", REVIEW, rival, p, reason)


def inferred_rows(
    ids: Sequence[str],
    classes: Sequence[str],
    labels: Tensor,
    f: Tensor,
    accept: float = ACCEPT_FROM,
    outliers: Tensor | None = None,
) -> Iterator[LabelRow]:
    """Rows whose labels were inferred: accepted if the label's probability is high enough."""
    own = f.gather(1, labels[:, None]).squeeze(1)
    others = f.scatter(1, labels[:, None], -1.0).max(dim=1)
    strange = [False] * len(ids) if outliers is None else outliers.tolist()
    for id_, k, p, k_2, p_2, is_strange in zip(
        ids,
        labels.tolist(),
        own.tolist(),
        others.indices.tolist(),
        others.values.tolist(),
        strange,
        strict=True,
    ):
        decision, reason = (ACCEPT if p >= accept else REVIEW), ""
        if is_strange:
            decision, reason = OUTLIER, "unknown? It was slow to learn under every class"
        yield LabelRow(id_, classes[k], p, "inferred", decision, classes[k_2], p_2, reason)
