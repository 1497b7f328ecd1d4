"""Classes keep their shares: t_k = c f_k, whatever rows a review has added to them.

Rows that a person labels because they are doubtful are mostly of classes that are confused, and lie
where these meet. If a pass over the labelled rows had such a class more often than its neighbour,
fresh networks would prefer it there, and phase one, which trusts what is learnt first, would give
it the rows of the neighbour: on digits whole classes got lost (docs/log.md). In phase two all rows
have a label, so that a few given ones do not make a class frequent.
"""

from dataclasses import replace

import torch
from torch import Tensor

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled


def with_fair_shares(data: PartiallyLabelled, reviewed: Tensor) -> PartiallyLabelled:
    """The same data, whose phase one has each class as often as the labels that are a fair sample.

    `reviewed` (N,) are rows that are none. No row is left out, so others are repeated.
    """
    if not (reviewed & (data.y >= 0)).any():
        return data
    return replace(data, repeats=_repeats(data.y, reviewed, data.n_classes))


def _repeats(y: Tensor, reviewed: Tensor, K: int) -> Tensor:  # noqa: N803
    """(N,) how often each labelled row is to come; within a class they differ by at most one."""
    n = torch.bincount(y[y >= 0], minlength=K).double()
    f = torch.bincount(y[(y >= 0) & ~reviewed], minlength=K).double()
    f = f.clamp(min=1)  # a class that only a review has found is rare
    t = (f * (n / f).max()).round().long().tolist()
    repeats = torch.ones_like(y)
    for k in range(K):
        own = (y == k).nonzero().squeeze(1)
        each, more = divmod(t[k], max(1, len(own)))
        repeats[own] = each + (torch.arange(len(own)) < more).long()
    return repeats
