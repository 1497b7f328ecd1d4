"""All statistics over runs: means, spreads, intervals, paired differences, chance."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

import numpy as np

CONFIDENCE = 0.95
_RESAMPLES = 10_000

Runs = Mapping[int, float]
"""One number for each seed."""


@dataclass(frozen=True)
class Estimate:
    """The mean of a number over runs, and where the mean of all possible runs is likely to be.

    Of a few runs the bootstrap alone is too sure of itself: with three it never looks beyond the
    lowest and the highest of them. So `low` and `high` are the outer ends of both intervals.
    """

    runs: int
    mean: float
    std: float | None = None  # None: a single run
    bootstrap: tuple[float, float] | None = None  # percentiles of resampled means
    student: tuple[float, float] | None = None  # by Student's t

    @property
    def low(self) -> float | None:
        """The lower end."""
        if self.bootstrap is None or self.student is None:
            return None
        return min(self.bootstrap[0], self.student[0])

    @property
    def high(self) -> float | None:
        """The upper end."""
        if self.bootstrap is None or self.student is None:
            return None
        return max(self.bootstrap[1], self.student[1])


def estimate(values: Sequence[float]) -> Estimate:
    """Mean, standard deviation and 95 % intervals of independent runs."""
    n, average = len(values), mean(values)
    spread = deviation(values)
    if spread is None:
        return Estimate(n, average)
    from scipy.stats import t as student  # heavy: only where it is needed

    half = float(student.ppf(0.5 + CONFIDENCE / 2, n - 1)) * spread / math.sqrt(n)
    resampled = np.random.default_rng(0).choice(np.asarray(values), (_RESAMPLES, n)).mean(axis=1)
    ends = np.quantile(resampled, [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2])
    low, high = (float(end) for end in ends)
    return Estimate(n, average, spread, (low, high), (average - half, average + half))


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of a sample; None for a single value."""
    return stdev(values) if len(values) > 1 else None


def differences(a: Runs, b: Runs) -> list[float]:
    """a - b over the seeds that both have: what the seeds have in common drops out."""
    return [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]


def paired_p(differences: Sequence[float]) -> float | None:
    """P of differences as large by chance: paired t-test, two-sided; None for fewer than two."""
    if len(differences) < 2:
        return None
    spread = stdev(differences)
    if spread == 0:
        return 1.0 if differences[0] == 0 else 0.0
    from scipy.stats import t as student

    n = len(differences)
    return float(2 * student.sf(abs(mean(differences)) / (spread / math.sqrt(n)), n - 1))


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Holm's correction: p_(k) times the number of tests left, never falling."""
    corrected, highest = {}, 0.0
    for done, name in enumerate(sorted(p, key=lambda name: p[name])):
        highest = max(highest, min(1.0, (len(p) - done) * p[name]))
        corrected[name] = highest
    return corrected


def rank_agreement(values: Sequence[float]) -> float:
    """Kendall's τ with the order they are given in: 1 if they only rise, -1 if they only fall."""
    signs = [
        (values[j] > values[i]) - (values[j] < values[i])
        for i in range(len(values))
        for j in range(i + 1, len(values))
    ]
    return mean(signs)
