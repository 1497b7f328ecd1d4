"""What most methods are trained by: steps at a scheduled rate, averages of weights, a loop."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from saas_ssl.algorithm.network import NewNetwork
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.randomness import global_draws_from
from saas_ssl.algorithm.schedules import (
    Schedule,
    constant,
    cosine,
    linear_end,
    ramp_down,
    ramp_up,
    triangular,
)
from saas_ssl.methods.feed import Feed
from saas_ssl.methods.settings import Training
from saas_ssl.methods.spending import Line, Losses, spend
from saas_ssl.vision.augment import Preprocessing

SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "triangular": triangular,
    "cosine": cosine,
    "linear-end": linear_end,
    "ramps": lambda t: ramp_up(t, 80 / 300) * ramp_down(t, 50 / 300),
}


@dataclass(frozen=True)
class Trained:
    """What a method gives back."""

    network: nn.Module
    preprocessing: Preprocessing
    history: list[Line]


Method = Callable[[PartiallyLabelled, NewNetwork, Any, Generator], Trained]
"""(Data, network factory, settings of the method's own kind, generator) -> what was trained."""


class Steps:
    """Steps on the weights of a network, at the learning rate of their time."""

    def __init__(self, w: nn.Module, settings: Training) -> None:
        self._settings, self._schedule = settings, SCHEDULES[settings.schedule]
        self._optimiser: torch.optim.Optimizer
        lr, momentum, decay = settings.lr, settings.momentum, settings.weight_decay
        if settings.optimiser == "sgd":
            self._optimiser = torch.optim.SGD(
                w.parameters(), lr, momentum, weight_decay=decay, nesterov=momentum > 0
            )
        else:
            self._optimiser = torch.optim.Adam(
                w.parameters(), lr, (momentum, 0.999), weight_decay=decay
            )

    def descend(self, loss: Tensor, t: float) -> None:
        """One step down the gradient of the loss, at the rate of time t in [0, 1)."""
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        momentum = self._momentum(t)
        for group in self._optimiser.param_groups:
            group["lr"] = self._settings.lr * self._schedule(t)
            if self._settings.optimiser == "sgd":
                group["momentum"] = momentum
            else:
                group["betas"] = (momentum, 0.999)
        self._optimiser.step()

    def _momentum(self, t: float) -> float:
        first, last = self._settings.momentum, self._settings.final_momentum
        if last is None:
            return first
        return last + (first - last) * ramp_down(t, 50 / 300)


class Average:
    """w̄ <- a w̄ + (1 - a) w, a = min(decay, 1 - 1/n) in step n: at first the mean of all so far."""

    def __init__(self, w: nn.Module) -> None:
        self.network, self._n = copy.deepcopy(w).requires_grad_(False), 0

    def follow(self, w: nn.Module, decay: float) -> None:
        """One step after w."""
        self._n += 1
        new = max(1 - decay, 1 / self._n)
        with torch.no_grad():
            for mean, now in zip(self.network.parameters(), w.parameters(), strict=True):
                mean.lerp_(now, new)

    def copy_statistics(self, w: nn.Module) -> None:
        """Take the statistics of batch normalisation from w."""
        for mine, new in zip(self.network.buffers(), w.buffers(), strict=True):
            mine.copy_(new)


def train(
    data: PartiallyLabelled,
    new_network: NewNetwork,
    settings: Training,
    generator: Generator,
    losses: Callable[[nn.Module, Feed, float], Losses],
) -> Trained:
    """Descend the sum of the losses until the budget is spent: most methods are no more."""
    w = new_network(generator).train()
    feed, sgd, average = Feed(data, settings, generator, w), Steps(w, settings), Average(w)

    def step(t: float) -> Losses:
        terms = losses(w, feed, t)
        sgd.descend(torch.stack(list(terms.values())).sum(), t)
        if settings.average:
            average.follow(w, settings.average)
        return terms

    with global_draws_from(generator):
        history = spend(settings, w, feed.example(), step)
    return Trained(averaged(w, average, settings), feed.preprocessing, history)


def averaged(w: nn.Module, average: Average, settings: Training) -> nn.Module:
    """The result: the average of the weights if there is one, else the last ones."""
    if settings.average == 0:
        return w.eval()
    average.copy_statistics(w)
    return average.network.eval()


@contextmanager
def frozen_statistics(w: nn.Module) -> Iterator[None]:
    """Inside, batches are still normalised by themselves but leave no trace in the network."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    layers = [module for module in w.modules() if isinstance(module, kinds)]
    before = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    try:
        yield
    finally:
        for layer, momentum in zip(layers, before, strict=True):
            layer.momentum = momentum
