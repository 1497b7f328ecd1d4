"""What all methods share: the form of settings and results, batches and views, steps, a budget."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Generator, Tensor, nn
from torch.nn.functional import one_hot
from torch.utils.flop_counter import FlopCounterMode

from saas_ssl.augment import (
    Preprocessing,
    View,
    augmented_view,
    fit_preprocessing,
    named_recipe,
    strong,
)
from saas_ssl.batches import cycle
from saas_ssl.checks import check_labels
from saas_ssl.data.partially_labelled import PartiallyLabelled
from saas_ssl.losses import log_softmax
from saas_ssl.networks import NewNetwork
from saas_ssl.randomness import global_draws_from
from saas_ssl.schedules import (
    Schedule,
    constant,
    cosine,
    linear_end,
    ramp_down,
    ramp_up,
    triangular,
)

SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "triangular": triangular,
    "cosine": cosine,
    "linear-end": linear_end,
    "ramps": lambda t: ramp_up(t, 80 / 300) * ramp_down(t, 50 / 300),
}
_HISTORY = 100  # lines at most


class Budget(BaseModel):
    """How long a method may train: image passes, or seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    passes: float | None = Field(default=None, gt=0, description="budget in image passes")
    seconds: float | None = Field(default=None, gt=0, description="... or in seconds")

    @property
    def unit(self) -> Literal["passes", "seconds"]:
        """What is counted."""
        return "seconds" if self.passes is None else "passes"

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        if (self.passes is None) == (self.seconds is None):
            raise ValueError("a budget is a number of passes or of seconds: give one of them")
        return self


class Training(Budget):
    """Settings that every method has."""

    augmentation: str = Field(default="none", description="recipe of the weak view")
    view: Literal["weak", "strong"] = Field(default="weak", description="how images are seen")
    noise: float = Field(default=0.0, ge=0, description="of the input, in standard deviations")
    whiten: bool = Field(default=False, description="ZCA-whiten the images first")
    labelled_batch: int = Field(default=25, ge=1, description="labelled rows in a step")
    unlabelled_batch: int = Field(default=50, ge=1, description="unlabelled rows in a step")
    optimiser: Literal["sgd", "adam"] = Field(
        default="sgd", description="sgd with momentum, or adam"
    )
    lr: float = Field(default=0.1, gt=0, description="highest learning rate")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="Nesterov's, or Adam's first")
    final_momentum: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="where the momentum goes in the last sixth, if it changes",
    )
    weight_decay: float = Field(default=1e-4, ge=0, description="of all weights")
    schedule: Literal["constant", "triangular", "cosine", "linear-end", "ramps"] = Field(
        default="triangular", description="of the learning rate over the budget"
    )
    average: float = Field(
        default=0.0, ge=0, lt=1, description="decay of an average of the weights that is the result"
    )


Losses = Mapping[str, Tensor]
"""The terms of the loss of a step by their names."""

Line = dict[str, float]
"""Part of a history: means over some steps."""


@dataclass(frozen=True)
class Trained:
    """What a method gives back."""

    network: nn.Module
    preprocessing: Preprocessing
    history: list[Line]


Method = Callable[[PartiallyLabelled, NewNetwork, Any, Generator], Trained]
"""(Data, network factory, settings of the method's own kind, generator) -> what was trained."""


class Feed:
    """Endless batches of labelled and unlabelled rows, and what a network sees of them."""

    def __init__(
        self, data: PartiallyLabelled, settings: Training, generator: Generator, w: nn.Module
    ) -> None:
        check_labels(data)
        self.data, self.K, self._generator = data, data.n_classes, generator
        self.l, self.u = data.labelled_rows, data.unlabelled_rows
        if len(self.u) == 0:
            raise ValueError("there are no unlabelled rows: every label is given already")
        device = next(w.parameters()).device
        self.preprocessing = fit_preprocessing(data.x, settings.whiten, data.rows).to(device)
        recipe, ndim = named_recipe(settings.augmentation), data.x.ndim
        stronger = strong(recipe) if ndim == 4 else recipe
        self._weak = _noisy(augmented_view(recipe, self.preprocessing, ndim), settings.noise)
        self._strong = _noisy(
            augmented_view(stronger, self.preprocessing, ndim), 2 * settings.noise
        )
        self._view = self._weak if settings.view == "weak" else self._strong
        self._labelled = cycle(len(self.l), settings.labelled_batch, generator)
        self._unlabelled = cycle(len(self.u), settings.unlabelled_batch, generator)

    def labelled(self) -> tuple[Tensor, Tensor]:
        """(x_l as it is seen, P_l one-hot) of the next batch."""
        rows = self.l[next(self._labelled)]
        x = self.view(self.data.x[rows])
        return x, one_hot(self.data.y[rows], self.K).to(x)

    def unlabelled(self) -> Tensor:
        """x_u of the next batch, as stored."""
        return self.numbered()[1]

    def numbered(self) -> tuple[Tensor, Tensor]:
        """(i, x_u as stored) of the next batch: which of the unlabelled rows they are."""
        i = next(self._unlabelled)
        return i, self.data.x[self.u[i]]

    def view(self, x: Tensor) -> Tensor:
        """One draw of the view that the settings name."""
        return self._view(x, self._generator)

    def weak(self, x: Tensor) -> Tensor:
        """One draw of the weak view."""
        return self._weak(x, self._generator)

    def strong(self, x: Tensor) -> Tensor:
        """One draw of the strong view."""
        return self._strong(x, self._generator)

    def example(self) -> Tensor:
        """Two rows as a network sees them."""
        return self.preprocessing(self.data.x[self.data.rows[:2]])

    def normal(self, *shape: int) -> Tensor:
        """Draws from N(0, 1), where the network is."""
        return torch.randn(shape, generator=self._generator).to(self.preprocessing.mean.device)


def _noisy(view: View, std: float) -> View:
    if std == 0:
        return view

    def noisy(x: Tensor, generator: Generator) -> Tensor:
        seen = view(x, generator)
        return seen + std * torch.randn(seen.shape, generator=generator).to(seen)

    return noisy


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


def together(w: nn.Module, *batches: Tensor) -> tuple[Tensor, ...]:
    """Log f of several batches in one pass, so that batch normalisation treats them alike."""
    log_f = log_softmax(w(torch.cat(batches)))
    parts: tuple[Tensor, ...] = log_f.split([len(x) for x in batches])
    return parts


def squared_difference(p: Tensor, q: Tensor) -> Tensor:
    """1/(|B| K) Σ_i ‖p_i - q_i‖²."""
    return (p - q).square().mean()
