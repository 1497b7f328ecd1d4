"""The Π-model: Laine and Aila, Temporal Ensembling for Semi-Supervised Learning, ICLR 2017."""

from functools import partial

from pydantic import Field
from torch import Generator, nn

from saas_ssl.algorithm.losses import cross_entropy
from saas_ssl.algorithm.network import NewNetwork
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.schedules import ramp_up
from saas_ssl.methods.feed import Feed
from saas_ssl.methods.settings import Training
from saas_ssl.methods.spending import Losses
from saas_ssl.methods.terms import squared_difference, together
from saas_ssl.methods.training import Trained, train


class PiModel(Training):
    """w_max, and how long the weight takes to reach it."""

    consistency: float = Field(
        default=100.0, ge=0, description="w_max, the weight of the difference"
    )
    ramp_up: float = Field(
        default=80 / 300, ge=0, le=1, description="share of the time until w_max"
    )


def losses(w: nn.Module, feed: Feed, t: float, settings: PiModel) -> Losses:
    """ℓ(x_l, y_l) + w(t) ‖f(g(x_u)) - f(g'(x_u))‖²: two draws of views and of dropout."""
    x_l, P_l = feed.labelled()
    rows = feed.unlabelled()
    log_f, log_z, log_z2 = together(w, x_l, feed.view(rows), feed.view(rows))
    weight = settings.consistency * ramp_up(t, settings.ramp_up)
    return {
        "labelled": cross_entropy(log_f, P_l),
        "unlabelled": weight * squared_difference(log_z.exp(), log_z2.exp()),
    }


def pi_model(
    data: PartiallyLabelled, new_network: NewNetwork, settings: PiModel, generator: Generator
) -> Trained:
    """A network that answers alike to two views of an image."""
    return train(data, new_network, settings, generator, partial(losses, settings=settings))
