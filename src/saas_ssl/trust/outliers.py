"""Rows that look like none of the classes."""

import math

import torch
from torch import Tensor

from saas_ssl.trust.calibration import at_labels

_SLOW, _ENOUGH_KNOWN = 0.05, 40  # share of known rows that are called slow, and how many it takes


def strangeness_of(inferred: Tensor, s_early: Tensor, f_supervised: Tensor) -> Tensor:
    """The mean of two ranks: slow to learn at first, and improbable by the given labels alone.

    Later outer iterations learn any row under the label that the first ones gave it.
    """
    scores = [at_labels(score, inferred) for score in (s_early, f_supervised)]
    ranks = [score.argsort(stable=True).argsort() for score in scores]
    return 1.0 - (ranks[0] + ranks[1]) / (2.0 * max(1, len(inferred) - 1))


def outliers_among(strangeness: Tensor, s_once: Tensor, s_known: Tensor) -> Tensor:
    """The strangest rows, as many as are slow under every class beyond what is to be expected.

    Known rows are given ones that were left out; a few cannot tell. Of n such rows, another of
    their kind is slower than the k-th slowest with probability k/(n + 1), however they are spread,
    give or take √k/(n + 1), which is granted as well.
    """
    outliers, n = torch.zeros(len(s_once), dtype=torch.bool), len(s_known)
    if n >= _ENOUGH_KNOWN:
        k = int(_SLOW * (n + 1))
        line = s_known.max(dim=1).values.sort().values[k - 1]
        expected = len(s_once) * (k + math.sqrt(k)) / (n + 1)
        beyond = int((s_once < line).sum() - expected)
        outliers[strangeness.argsort(descending=True, stable=True)[: max(0, beyond)]] = True
    return outliers
