"""Steps until a budget is spent, and what a step costs."""

import copy
import math
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from saas_ssl.methods.settings import Budget

_HISTORY = 100  # lines at most

Losses = Mapping[str, Tensor]
"""The terms of the loss of a step by their names."""

Line = dict[str, float]
"""Part of a history: means over some steps."""


def spend(
    budget: Budget, w: nn.Module, example: Tensor, step: Callable[[float], Losses]
) -> list[Line]:
    """Take steps at times t from 0 to 1 until the budget is spent; the first shows their cost.

    The unit of cost is one image pass: w forward and backward on one row of the example. What else
    a step does (forward only, backward to the input, a generator) counts by its operations.
    """
    one_pass = flops_of_pass(w, example)  # first, since loading the counter takes a while
    clock = _Clock(budget)
    history: list[Line] = []
    with FlopCounterMode(display=False) as counter:
        terms = step(0.0)
    cost = counter.get_total_flops() / one_pass
    sums, n, t = {name: term.detach().clone() for name, term in terms.items()}, 1, 0.0
    since = 0
    while True:
        ended = (t := clock.time(n, cost)) >= 1
        if ended or t * _HISTORY >= len(history) + 1:
            means = {name: float(total) / (n - since) for name, total in sums.items()}
            if not all(map(math.isfinite, means.values())):
                raise ValueError(f"training diverged after {n} steps: lower lr")
            history.append({"t": t, "steps": n, "passes": n * cost, **means})
            sums, since = {name: torch.zeros_like(total) for name, total in sums.items()}, n
        if ended:
            return history
        for name, term in step(t).items():
            sums[name] += term.detach()
        n += 1


class _Clock:
    """Which share of a budget is spent."""

    def __init__(self, budget: Budget) -> None:
        self._budget, self._start = budget, time.monotonic()

    def time(self, steps: int, cost: float) -> float:
        """After so many steps of so many image passes each."""
        if self._budget.seconds is not None:
            return (time.monotonic() - self._start) / self._budget.seconds
        # To the nearest whole number of steps, and one at least.
        return steps / max(1, round((self._budget.passes or 0.0) / cost))


def flops_of_pass(w: nn.Module, x: Tensor) -> float:
    """Floating-point operations of one image pass: forward, and backward to the weights."""
    trial = copy.deepcopy(w)
    with FlopCounterMode(display=False) as counter:
        trial(x).sum().backward()
    flops: float = counter.get_total_flops() / len(x)
    if flops == 0:
        raise ValueError("the network has no layer whose cost could be counted")
    return flops
