"""Which classes are confused: C_ab = Σ_i p_i(b) over the inferred rows i that are labelled a."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

_ELEMENTS = 1 << 20  # of the posterior that are in memory at once
_MOST_PAIRS = 12
_WORTH_TELLING = 0.5  # rows


@dataclass(frozen=True)
class Pair:
    """Rows labelled `label` that are expected to be of class `other`."""

    label: int
    other: int
    rows: float


def expected_confusion(posterior: Path, label: Tensor, given: Tensor, n_classes: int) -> Tensor:
    """(K, K) expected numbers of rows, by their label and by what they really are.

    `label` and `given` (N,) are columns of labels.csv.
    """
    C = torch.zeros(n_classes, n_classes, dtype=torch.float64)  # noqa: N806
    size = max(1, _ELEMENTS // n_classes)
    with safe_open(posterior, framework="pt") as file:
        probabilities = file.get_slice("probabilities")
        for start in range(0, len(label), size):
            block = slice(start, start + size)
            inferred = ~given[block]
            p = probabilities[block][inferred].double()
            C.index_add_(0, label[block][inferred], p)
    return C


def largest_pairs(confusion: Tensor) -> list[Pair]:
    """The pairs of different classes that most rows are expected in, these first."""
    off = confusion.clone().fill_diagonal_(0.0).flatten()
    order = off.argsort(descending=True, stable=True)[:_MOST_PAIRS].tolist()
    n_classes = len(confusion)
    return [
        Pair(place // n_classes, place % n_classes, float(off[place]))
        for place in order
        if off[place] >= _WORTH_TELLING
    ]


def expected_wrong(confusion: Tensor) -> float:
    """How many inferred labels are expected to be wrong."""
    return float(confusion.sum() - confusion.diagonal().sum())
