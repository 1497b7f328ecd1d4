"""Which rows and classes a page of bounded length shows; the same ones every time."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saas_ssl.report.reading import Columns

MOST_CLASSES = 20
_PER_CLASS, _UNSURE, _SUSPECTS, _OUTLIERS = 8, 24, 48, 48
MOST_EXAMPLES = MOST_CLASSES * _PER_CLASS + _UNSURE + _SUSPECTS + _OUTLIERS
"""So many pictures a page has at most."""


@dataclass(frozen=True)
class Examples:
    """Rows of labels.csv by their numbers."""

    sure: dict[int, list[int]]  # by the number of the class
    unsure: list[int]
    suspects: list[int]
    outliers: list[int]

    def all(self) -> set[int]:
        """Each of them once."""
        return {*self.unsure, *self.suspects, *self.outliers}.union(*self.sure.values())


def shown_classes(inferred: Tensor) -> list[int]:
    """All classes in their order, or if they are many those of most inferred labels.

    `inferred` (K,) counts these.
    """
    if len(inferred) <= MOST_CLASSES:
        return list(range(len(inferred)))
    return inferred.argsort(descending=True, stable=True)[:MOST_CLASSES].tolist()


def examples(table: Columns, classes: Sequence[int]) -> Examples:
    """Sure rows of these classes, and of all classes those that a person should see."""
    p, inferred = table.probability, ~table.given
    # Hundredths: among all the rows that are as good as certain, none is to be preferred.
    rough = p.round(decimals=2)
    sure = {}
    for k in classes:
        rows = _rows(inferred & (table.label == k))
        sure[k] = _most(rows, rough[rows], _PER_CLASS)
    least = {
        name: _rows(mask)
        for name, mask in (
            ("unsure", inferred & ~table.outlier),
            ("suspects", table.suspected),
            ("outliers", table.outlier),
        )
    }
    return Examples(
        sure,
        _most(least["unsure"], -p[least["unsure"]], _UNSURE),
        _most(least["suspects"], -p[least["suspects"]], _SUSPECTS),
        _most(least["outliers"], -p[least["outliers"]], _OUTLIERS),
    )


def evenly_spaced(total: int, n: int) -> list[int]:
    """n of so many places, the first and the last among them."""
    if total <= n:
        return list(range(total))
    return [i * (total - 1) // max(1, n - 1) for i in range(n)]


def _rows(mask: Tensor) -> Tensor:
    return mask.nonzero().squeeze(1)


def _most(rows: Tensor, values: Tensor, n: int) -> list[int]:
    """The n rows of the largest values, these first; of equal ones at the end, from everywhere."""
    order = values.argsort(descending=True, stable=True)
    if len(rows) > n:
        line = values[order[n - 1]]
        better, equal = order[values[order] > line], order[values[order] == line]
        spread = evenly_spaced(len(equal), n - len(better))
        order = torch.cat([better, equal[spread]])
    chosen: list[int] = rows[order].tolist()
    return chosen
