"""The label table: what the user came for."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from saas_ssl.data.partially_labelled import UNLABELLED, PartiallyLabelled

ACCEPT_FROM = 0.95


class LabelRow(NamedTuple):
    """One line of labels.csv."""

    id: str
    label: str
    probability: float
    source: str  # given or inferred
    decision: str  # accept or review
    runner_up: str
    runner_up_probability: float


def label_rows(data: PartiallyLabelled, inferred: Tensor, f: Tensor) -> Iterator[LabelRow]:
    """One row per row of the data, in order.

    `inferred` (N_u,) are the labels of the unlabelled rows and `f` (N_u, K) the classifier's
    probabilities of them. A label is accepted if its probability is at least 0.95.
    """
    position = torch.full_like(data.y, -1)
    position[data.unlabelled_rows] = torch.arange(len(inferred))
    own = f.gather(1, inferred[:, None]).squeeze(1).tolist()
    others = f.scatter(1, inferred[:, None], -1.0).max(dim=1)
    labels, runners_up, seconds = inferred.tolist(), others.indices.tolist(), others.values.tolist()
    for id_, y, i in zip(data.ids, data.y.tolist(), position.tolist(), strict=True):
        if y != UNLABELLED:
            yield LabelRow(id_, data.classes[y], 1.0, "given", "accept", "", 0.0)
        else:
            yield LabelRow(
                id_,
                data.classes[labels[i]],
                own[i],
                "inferred",
                "accept" if own[i] >= ACCEPT_FROM else "review",
                data.classes[runners_up[i]],
                seconds[i],
            )


def write_labels(path: Path, rows: list[LabelRow]) -> None:
    """Write labels.csv."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(LabelRow._fields)
        for row in rows:
            writer.writerow(
                row._replace(
                    probability=round(row.probability, 6),
                    runner_up_probability=round(row.runner_up_probability, 6),
                )
            )
