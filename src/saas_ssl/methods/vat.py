"""Virtual Adversarial Training with entropy minimisation: Miyato et al., TPAMI 2018."""

from functools import partial

import torch
from pydantic import Field
from torch import Generator, Tensor, nn

from saas_ssl.algorithm.losses import cross_entropy, entropy, log_softmax
from saas_ssl.algorithm.network import NewNetwork
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.methods.feed import Feed
from saas_ssl.methods.settings import Budget, Training
from saas_ssl.methods.spending import Losses
from saas_ssl.methods.training import Trained, frozen_statistics, train


class Adversary(Budget):
    """How a virtual adversarial direction is found."""

    epsilon: float = Field(
        default=8.0, gt=0, description="ε, length of the perturbation of an input"
    )
    xi: float = Field(default=1e-6, gt=0, description="ξ, length of a trial step, in the same unit")
    power_iterations: int = Field(default=1, ge=1, description="to find the direction")
    smoothness: float = Field(default=1.0, ge=0, description="weight of the smoothness")


class Vat(Training, Adversary):
    """The adversary, and the weight of the entropy."""

    entropy_weight: float = Field(default=1.0, ge=0, description="of the outputs")


def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p ‖ q), mean over the batch; p is a constant."""
    log_p = log_p.detach()
    return (log_p.exp() * (log_p - log_q)).sum(dim=1).mean()


def unit(d: Tensor) -> Tensor:
    """d_i / ‖d_i‖ for each row."""
    norms: Tensor = torch.linalg.vector_norm(d.flatten(1), dim=1)
    norms = norms.clamp(min=torch.finfo(d.dtype).tiny).view(-1, *[1] * (d.ndim - 1))
    return d / norms


def adversarial(w: nn.Module, x: Tensor, log_p: Tensor, d: Tensor, settings: Adversary) -> Tensor:
    """r = ε g/‖g‖, g = ∇_r KL(f(x) ‖ f(x + r)) at r = ξ d: where the outputs change most.

    One power iteration for the first eigenvector of the Hessian, from the random direction d.
    """
    for _ in range(settings.power_iterations):
        r = (settings.xi * unit(d)).requires_grad_()
        (d,) = torch.autograd.grad(divergence(log_p, log_softmax(w(x + r))), r)
    return settings.epsilon * unit(d)


def smoothness(w: nn.Module, x: Tensor, log_p: Tensor, d: Tensor, settings: Adversary) -> Tensor:
    """LDS = KL(f(x) ‖ f(x + r)) at the adversarial r."""
    with frozen_statistics(w):
        r = adversarial(w, x, log_p, d, settings)
        return divergence(log_p, log_softmax(w(x + r)))


def losses(w: nn.Module, feed: Feed, _t: float, settings: Vat) -> Losses:
    """ℓ(x_l, y_l) + LDS(x_u) + H(f(x_u))."""
    x_l, P_l = feed.labelled()
    x_u = feed.view(feed.unlabelled())
    log_f = log_softmax(w(x_u))
    d = feed.normal(*x_u.shape)
    return {
        "labelled": cross_entropy(log_softmax(w(x_l)), P_l),
        "unlabelled": settings.smoothness * smoothness(w, x_u, log_f, d, settings),
        "entropy": settings.entropy_weight * entropy(log_f),
    }


def vat(
    data: PartiallyLabelled, new_network: NewNetwork, settings: Vat, generator: Generator
) -> Trained:
    """A network whose outputs hardly change in the direction in which they change most."""
    return train(data, new_network, settings, generator, partial(losses, settings=settings))
