"""FixMatch: Sohn et al., NeurIPS 2020."""

from functools import partial

import torch
from pydantic import Field
from torch import Generator, nn

from saas_ssl.algorithm.losses import cross_entropy, log_softmax
from saas_ssl.algorithm.network import NewNetwork
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.methods.feed import Feed
from saas_ssl.methods.settings import Training
from saas_ssl.methods.spending import Losses
from saas_ssl.methods.terms import confident_cross_entropy, together
from saas_ssl.methods.training import Trained, train


class FixMatch(Training):
    """The threshold τ and the weight λ_u of the confident labels."""

    threshold: float = Field(
        default=0.95, ge=0, le=1, description="τ, least probability of a label"
    )
    unlabelled_weight: float = Field(default=1.0, ge=0, description="λ_u, of the unlabelled loss")


def losses(w: nn.Module, feed: Feed, _t: float, settings: FixMatch) -> Losses:
    """ℓ(x_l, y_l) + λ_u 1[max q ≥ τ] ℓ(strong(x_u), argmax q), q = f(weak(x_u))."""
    x_l, P_l = feed.labelled()
    rows = feed.unlabelled()
    with torch.no_grad():
        q = log_softmax(w(feed.weak(rows))).exp()
    log_f, log_strong = together(w, x_l, feed.strong(rows))
    unlabelled = confident_cross_entropy(log_strong, q, settings.threshold)
    return {
        "labelled": cross_entropy(log_f, P_l),
        "unlabelled": settings.unlabelled_weight * unlabelled,
    }


def fixmatch(
    data: PartiallyLabelled, new_network: NewNetwork, settings: FixMatch, generator: Generator
) -> Trained:
    """A network that learns from strong views what it is sure of in weak ones."""
    return train(data, new_network, settings, generator, partial(losses, settings=settings))
