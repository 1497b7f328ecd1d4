"""Steps on the weights: w <- w - η_w ∇ loss with momentum, and Langevin noise."""

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer


def set_rate_(optimiser: Optimizer, eta: float) -> None:
    """Make η the learning rate of the next steps."""
    for group in optimiser.param_groups:
        group["lr"] = eta


def descend_(optimiser: Optimizer, loss: Tensor) -> None:
    """One step down the gradient of the loss at the current weights."""
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()


def add_noise_(network: nn.Module, variance: float, generator: Generator) -> None:
    """w <- w + N(0, variance): the noise of stochastic gradient Langevin dynamics."""
    if variance == 0:
        return
    with torch.no_grad():
        for w in network.parameters():
            noise = torch.randn(w.shape, generator=generator, dtype=w.dtype)
            w.add_(noise.to(w.device), alpha=variance**0.5)
