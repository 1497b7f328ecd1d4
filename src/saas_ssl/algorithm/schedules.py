"""Learning rates as plain functions: of t/T in Phase I, of the scores so far in Phase II."""

import math
from collections.abc import Callable, Sequence

Schedule = Callable[[float], float]
"""The share of the full learning rate at time t/T in (0, 1)."""

Rate = Callable[[Sequence[float]], float]
"""The learning rate of the next epoch given the scores of the past (higher is better); 0: stop."""


def constant(_time: float) -> float:
    """1 at any time, as in the paper."""
    return 1.0


PEAK = 0.25
"""When the triangular schedule is at its highest."""


def triangular(time: float, peak: float = PEAK) -> float:
    """From 0 up to 1 at `peak`, then down to 0: t/p for t < p, else (1 - t)/(1 - p)."""
    return time / peak if time < peak else (1.0 - time) / (1.0 - peak)


def cosine(time: float) -> float:
    """cos(7πt/16): FixMatch's, from 1 down to 0.2."""
    return math.cos(7 * math.pi * time / 16)


def linear_end(time: float, begin: float = 460 / 500) -> float:
    """1 until `begin`, then straight down to 0, as VAT was trained."""
    return min(1.0, (1.0 - time) / (1.0 - begin))


def ramp_up(time: float, length: float) -> float:
    """exp(-5 (1 - t/l)²) for t < l, then 1: how Temporal Ensembling turns on its second loss."""
    return math.exp(-5.0 * (1.0 - min(1.0, time / length)) ** 2) if length > 0 else 1.0


def ramp_down(time: float, length: float) -> float:
    """1, and exp(-12.5 (1 - (1 - t)/l)²) over the last l of the time."""
    return math.exp(-12.5 * (1.0 - min(1.0, (1.0 - time) / length)) ** 2)


SCHEDULES: dict[str, Schedule] = {"constant": constant, "triangular": triangular}


def fixed_length(eta: float, epochs: int, schedule: Schedule) -> Rate:
    """η · schedule(t/T) for a known number of epochs."""

    def rate(scores: Sequence[float]) -> float:
        n = len(scores)
        return eta * schedule((n + 0.5) / epochs) if n < epochs else 0.0

    return rate


def halving(eta: float, patience: int, stop: float) -> Rate:
    """η, halved whenever the score has not risen for `patience` epochs, until it reaches `stop`."""

    def rate(scores: Sequence[float]) -> float:
        current, best, waited = eta, float("-inf"), 0
        for score in scores:
            waited = 0 if score > best else waited + 1
            best = max(best, score)
            if waited == patience:
                current, waited = current / 2, 0
        return current if current > stop else 0.0

    return rate


def least_epochs(eta: float, patience: int, stop: float) -> int:
    """How many epochs `halving` takes if the score never rises after the first."""
    return math.ceil(math.log2(eta / stop)) * patience + 1
