"""The label table: what the user came for."""

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

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
    """One row per row of the data that is not set aside, in order.

    `inferred` (N_u,) are the labels of the unlabelled rows and `f` (N_u, K) the classifier's
    probabilities of them.
    """
    unlabelled = inferred_rows(
        [data.ids[row] for row in data.unlabelled_rows.tolist()], data.classes, inferred, f
    )
    for row, y in zip(data.rows.tolist(), data.y[data.rows].tolist(), strict=True):
        if y == UNLABELLED:
            yield next(unlabelled)
        else:
            yield LabelRow(data.ids[row], data.classes[y], 1.0, "given", "accept", "", 0.0)


def inferred_rows(
    ids: Sequence[str], classes: Sequence[str], labels: Tensor, f: Tensor
) -> Iterator[LabelRow]:
    """Rows whose labels were inferred: accepted if the label's probability is at least 0.95."""
    own = f.gather(1, labels[:, None]).squeeze(1)
    others = f.scatter(1, labels[:, None], -1.0).max(dim=1)
    for id_, k, p, k_2, p_2 in zip(
        ids,
        labels.tolist(),
        own.tolist(),
        others.indices.tolist(),
        others.values.tolist(),
        strict=True,
    ):
        decision = "accept" if p >= ACCEPT_FROM else "review"
        yield LabelRow(id_, classes[k], p, "inferred", decision, classes[k_2], p_2)


def write_labels(path: Path, rows: Iterable[LabelRow]) -> None:
    """Write labels.csv, or leave the one that was there."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("w", newline="", encoding="utf-8") as file:
            write_rows(file, rows)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_rows(file: TextIO, rows: Iterable[LabelRow]) -> None:
    """Write the header and the rows, one by one."""
    writer = csv.writer(file)
    writer.writerow(LabelRow._fields)
    writer.writerows(map(rounded, rows))


def rounded(row: LabelRow) -> LabelRow:
    """Probabilities to six digits."""
    return row._replace(
        probability=round(row.probability, 6),
        runner_up_probability=round(row.runner_up_probability, 6),
    )
