"""Regularisation with stochastic transformations and perturbations: Sajjadi et al., NIPS 2016."""

from functools import partial

import torch
from pydantic import Field
from torch import Generator, Tensor, nn

from saas_ssl.algorithm.losses import cross_entropy
from saas_ssl.algorithm.network import NewNetwork
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.methods.feed import Feed
from saas_ssl.methods.settings import Training
from saas_ssl.methods.spending import Losses
from saas_ssl.methods.terms import together
from saas_ssl.methods.training import Trained, train


class StochasticTransformations(Training):
    """The number of passes, and the weights of the two losses."""

    views: int = Field(default=5, ge=2, description="n, views of an image in a step")
    stability: float = Field(
        default=1.0, ge=0, description="λ₁, weight of transformation/stability"
    )
    exclusivity: float = Field(default=0.1, ge=0, description="λ₂, weight of mutual exclusivity")


def stability(views: Tensor) -> Tensor:
    """Σ_{j<k} ‖f(g_j(x_i)) - f(g_k(x_i))‖², mean over the images i; views is (n, B, K)."""
    # The sum over all pairs is n times that of the squared distances from the mean.
    return (views - views.mean(dim=0)).square().sum(dim=(0, 2)).mean() * len(views)


def exclusivity(f: Tensor) -> Tensor:
    """-Σ_k f_k Π_{l≠k} (1 - f_l), mean over the rows: -1 where one class has all, 0 where none."""
    itself = torch.eye(f.shape[1], dtype=torch.bool, device=f.device)
    others = (1 - f).unsqueeze(1).masked_fill(itself, 1.0).prod(dim=2)
    return -(f * others).sum(dim=1).mean()


def losses(w: nn.Module, feed: Feed, _t: float, settings: StochasticTransformations) -> Losses:
    """ℓ(x_l, y_l) + λ₁ l_TS(x_u) + λ₂ l_ME(x_u), over n views of each image."""
    x_l, P_l = feed.labelled()
    rows = feed.unlabelled()
    n = settings.views
    log_f, *log_views = together(w, x_l, *(feed.view(rows) for _ in range(n)))
    f = torch.stack(log_views).exp()
    return {
        "labelled": cross_entropy(log_f, P_l),
        "unlabelled": settings.stability * stability(f),
        "exclusivity": settings.exclusivity * exclusivity(f.flatten(0, 1)),
    }


def stochastic_transformations(
    data: PartiallyLabelled,
    new_network: NewNetwork,
    settings: StochasticTransformations,
    generator: Generator,
) -> Trained:
    """A network that answers alike, and clearly, to many views of an image."""
    return train(data, new_network, settings, generator, partial(losses, settings=settings))
