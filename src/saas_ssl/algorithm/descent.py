"""Steps on the weights: w <- w - η_w ∇ loss with momentum, and Langevin noise."""

from collections.abc import Mapping, Sequence
from typing import Self, cast

import torch
from torch import Generator, Tensor, nn
from torch.optim.sgd import sgd

from saas_ssl.algorithm.blocks import below
from saas_ssl.algorithm.network import unwrapped
from saas_ssl.algorithm.randomness import global_state, set_global_state

WEIGHTS, _MOMENTUM, _DRAWS, _LAYERS = "w.", "momentum.", "draws.", "layers."  # in a state


class Descent:
    """A network under way by gradient descent, with all that its next step depends on.

    `n` says which inner loop or epoch this is and `t` how many of its steps are done, `sum` is what
    the caller adds up over them, and `draws` are its generators: `state` is enough to go on later
    as if nothing had happened. Half precision needs loss `scaling`, or small gradients vanish.
    """

    def __init__(
        self,
        w: nn.Module,
        momentum: float,
        n: int,
        sum: Tensor,
        draws: Sequence[Generator],
        weight_decay: float = 0.0,
        scaling: bool = False,
    ) -> None:
        self.w, self.n, self.t, self.sum, self.draws = w, n, 0, sum, draws
        self._sgd = _Sgd(list(w.parameters()), momentum, weight_decay)
        device = next(w.parameters()).device.type
        self._scaler = torch.amp.GradScaler(device, enabled=scaling)  # not enabled: does nothing

    def set_rate(self, eta: float) -> None:
        """Make η the learning rate of the next steps."""
        self._sgd.eta = eta

    def descend(self, loss: Tensor) -> None:
        """One step down the gradient of the loss at the current weights."""
        for w in self._sgd.weights:
            w.grad = None
        self._scaler.scale(loss).backward()
        self._scaler.step(cast(torch.optim.Optimizer, self._sgd))  # of which it wants this much
        self._scaler.update()

    def state(self) -> dict[str, Tensor]:
        """Everything that `restore` needs, by name; the tensors are not copied."""
        state = {
            "n": torch.tensor(self.n),
            "t": torch.tensor(self.t),
            "sum": self.sum,
            **{WEIGHTS + name: value for name, value in unwrapped(self.w).state_dict().items()},
            **{f"{_MOMENTUM}{i}": v for i, v in enumerate(self._sgd.buffers) if v is not None},
            **{f"{_DRAWS}{i}": draw.get_state() for i, draw in enumerate(self.draws)},
        }
        if self._scaler.is_enabled():
            scaler = self._scaler.state_dict()
            state["scale"] = torch.tensor([scaler["scale"], scaler["_growth_tracker"]])
        if self.t:  # between inner loops or epochs the layers' draws begin anew
            state |= {_LAYERS + name: value for name, value in global_state().items()}
        return state

    def counted(self) -> Self:
        """One more step is done."""
        self.t += 1
        return self

    def begin(self, n: int) -> None:
        """Epoch `n` comes next: count and sum from nothing."""
        self.n, self.t = n, 0
        self.sum.zero_()

    def restore(self, state: Mapping[str, Tensor] | None) -> None:
        """Put everything back as it was when `state` was taken, if it is one of this very loop."""
        if state is None or int(state["n"]) != self.n:
            return
        self.t = int(state["t"])
        self.sum.copy_(state["sum"])
        unwrapped(self.w).load_state_dict(below(WEIGHTS, state))
        for name, v in below(_MOMENTUM, state).items():
            self._sgd.buffers[int(name)] = torch.empty_like(self._sgd.weights[int(name)]).copy_(v)
        for i, draw in enumerate(self.draws):
            draw.set_state(state[f"{_DRAWS}{i}"])
        if "scale" in state:
            scale, tracker = state["scale"].tolist()
            scaler = self._scaler.state_dict()
            self._scaler.load_state_dict(scaler | {"scale": scale, "_growth_tracker": int(tracker)})
        set_global_state(below(_LAYERS, state))


class _Sgd:
    """torch's own steps, but not its class: that imports torch._dynamo, which takes a second."""

    def __init__(self, weights: list[nn.Parameter], momentum: float, weight_decay: float) -> None:
        self.weights, self.buffers = weights, cast(list[Tensor | None], [None] * len(weights))
        self.param_groups = [{"params": weights}]
        self.eta, self._momentum, self._weight_decay = 0.0, momentum, weight_decay

    @torch.no_grad()
    def step(self) -> None:
        """v <- μ v + ∇ + λ w, w <- w - η v, for all weights that have a gradient."""
        used = [i for i, w in enumerate(self.weights) if w.grad is not None]
        buffers = [self.buffers[i] for i in used]
        sgd(
            [self.weights[i] for i in used],
            [cast(Tensor, self.weights[i].grad) for i in used],
            buffers,
            weight_decay=self._weight_decay,
            momentum=self._momentum,
            lr=self.eta,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        for i, buffer in zip(used, buffers, strict=True):
            self.buffers[i] = buffer


def add_noise_(network: nn.Module, variance: float, generator: Generator) -> None:
    """w <- w + N(0, variance): the noise of stochastic gradient Langevin dynamics."""
    if variance == 0:
        return
    with torch.no_grad():
        for w in network.parameters():
            noise = torch.randn(w.shape, generator=generator, dtype=w.dtype)
            w.add_(noise.to(w.device), alpha=variance**0.5)
