"""Which rows a person should check first: argmax_i u_i d_i, uncertainty times diversity.

u_i is how probable it is that the label of row i is wrong; d_i is how far the row is, in what the
last layer of the classifier sees, from the nearest one that is given or stands before it. So the
first rows are doubtful, and no two of them are nearly the same.
"""

import torch
from torch import Tensor

_RANKED = 1_000  # by both; who has checked so many labels again instead
_CANDIDATES = 10_000  # for them, the most doubtful
_KNOWN_AT_ONCE = 256  # rows whose distances are in memory together


def candidates(u: Tensor) -> Tensor:
    """The rows that can be among the first: their features are needed."""
    return u.argsort(descending=True, stable=True)[:_CANDIDATES]


def review_order(u: Tensor, h: Tensor, h_known: Tensor) -> Tensor:
    """All rows, those first that are most worth a look.

    `u` (N,) is the probability that a label is wrong, `h` (n, D) the features of `candidates(u)`,
    `h_known` those of given rows.
    """
    near = candidates(u)
    h, h_known = (torch.nn.functional.normalize(part.double()) for part in (h, h_known))
    d, taken = (
        torch.full((len(h),), 2.0, dtype=torch.float64),
        torch.zeros(len(h), dtype=torch.bool),
    )
    for known in h_known.split(_KNOWN_AT_ONCE):
        d = torch.minimum(d, torch.cdist(h, known).min(dim=1).values)
    first = list[int]()
    for _ in range(min(_RANKED, len(near))):
        i = int((u[near] * d).masked_fill(taken, -1.0).argmax())
        first.append(i)
        d, taken[i] = torch.minimum(d, (h - h[i]).norm(dim=1)), True
    chosen = near[torch.tensor(first, dtype=torch.int64)]
    rest = u.clone()
    rest[chosen] = torch.inf
    return torch.cat([chosen, rest.argsort(descending=True, stable=True)[len(chosen) :]])
