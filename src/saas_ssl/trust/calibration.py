"""p = (1 - ε) softmax(a s) + ε/K: from how fast a row was learnt to how sure its label is.

s is the mean of log f_w(x) over time. Given labels that were left out of training say what a and ε
are; both are averaged over, so that little evidence gives cautious probabilities.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from saas_ssl.algorithm.blocks import in_blocks

_LOG_A = torch.linspace(-1.5, 2.5, 81, dtype=torch.float64)
_EPSILON = torch.linspace(0.0, 0.2, 11, dtype=torch.float64)
# Where no evidence is: log a ~ N(log 1.75, 0.35²) and ε ~ Beta(1, 20), see docs/trust.md.
_USUAL_A, _SPREAD, _RARITY = 1.75, 0.35, 20
_NEGLIGIBLE, _TINY = 1e-6, 1e-300


@dataclass(frozen=True)
class Calibration:
    """How probable each pair of a and ε is after the evidence."""

    weights: Tensor  # one for each value of log a and of ε, sum 1

    @property
    def a(self) -> float:
        """The mean of a in logarithms."""
        return float((self.weights.sum(dim=1) @ _LOG_A).exp())

    def probabilities(self, s: Tensor) -> Tensor:
        """(N, K) probabilities of the classes from (N, K) mean log-probabilities."""
        return torch.cat([self._of_block(block.double()) for block in in_blocks(s)]).float()

    def _of_block(self, s: Tensor) -> Tensor:
        p, K = torch.zeros_like(s), s.shape[1]
        for log_a, weights in zip(_LOG_A, self.weights, strict=True):
            if weights.sum() > _NEGLIGIBLE:
                kept = (weights * (1 - _EPSILON)).sum()
                p += kept * (log_a.exp() * s).softmax(dim=1) + (weights.sum() - kept) / K
        return p / p.sum(dim=1, keepdim=True)

    def mistaken(self, s: Tensor, y: Tensor) -> Tensor:
        """(ε/K) / p(y): how likely a label is of those ε that the scores do not explain."""
        s, uniform, chance = s.double(), _EPSILON / s.shape[1], torch.zeros(len(s)).double()
        for log_a, weights in zip(_LOG_A, self.weights, strict=True):
            p = (1 - _EPSILON) * _of_labels((log_a.exp() * s).softmax(dim=1), y) + uniform
            chance += (weights * uniform / p.clamp(min=_TINY)).sum(dim=1)
        return chance


def fit_calibration(s: Tensor, y: Tensor) -> Calibration:
    """P(a, ε | y) ∝ P(a) P(ε) Π_i p_i(y_i), on a grid: `s` (n, K) of rows whose labels are `y`."""
    s = s.double()
    prior_a = -0.5 * ((_LOG_A - math.log(_USUAL_A)) / _SPREAD) ** 2
    prior_epsilon = (_RARITY - 1) * (1 - _EPSILON).log()
    likelihood = torch.stack([_log_likelihood((a * s).softmax(dim=1), y) for a in _LOG_A.exp()])
    evidence = likelihood + prior_a[:, None] + prior_epsilon
    return Calibration((evidence - evidence.logsumexp(dim=(0, 1))).exp())


def _log_likelihood(softmax: Tensor, y: Tensor) -> Tensor:
    """Σ_i log((1 - ε) softmax_i(y_i) + ε/K), for each ε."""
    p = (1 - _EPSILON) * _of_labels(softmax, y) + _EPSILON / softmax.shape[1]
    return p.clamp(min=_TINY).log().sum(dim=0)


def _of_labels(p: Tensor, y: Tensor) -> Tensor:
    return p.gather(1, y[:, None])


def accuracy_interval(right: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Jeffreys' interval of a share of which so many of n were seen; (0, 1) if none were."""
    from scipy.special import betaincinv  # what scipy.stats calls, which takes long to import

    tail, a, b = (1 - level) / 2, right + 0.5, n - right + 0.5
    low = betaincinv(a, b, tail) if right > 0 else 0.0
    high = betaincinv(a, b, 1 - tail) if right < n else 1.0
    return float(low), float(high)


@dataclass(frozen=True)
class Bin:
    """Rows of like probability."""

    rows: int
    said: float  # their mean probability
    true: float  # the share of them that is right


def reliability(p: Tensor, right: Tensor, bins: int = 15) -> list[Bin]:
    """Rows in equal steps of probability, those that are empty left out."""
    place = (p.double() * bins).long().clamp(max=bins - 1)
    return [
        Bin(int(own.sum()), p[own].double().mean().item(), right[own].double().mean().item())
        for b in range(bins)
        if (own := place == b).any()
    ]


def calibration_error(p: Tensor, right: Tensor, bins: int = 15) -> float:
    """Σ_b n_b/N |said_b - true_b|: the expected calibration error."""
    return sum(b.rows * abs(b.said - b.true) for b in reliability(p, right, bins)) / len(p)


def at_labels(p: Tensor, labels: Tensor) -> Tensor:
    """The entry of each row that belongs to its label."""
    return p.gather(1, labels[:, None]).squeeze(1)
