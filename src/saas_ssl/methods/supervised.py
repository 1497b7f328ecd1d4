"""The labelled rows alone: what every method must beat."""

from torch import Generator, nn

from saas_ssl.algorithm.losses import cross_entropy, log_softmax
from saas_ssl.algorithm.network import NewNetwork
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.methods.feed import Feed
from saas_ssl.methods.settings import Training
from saas_ssl.methods.spending import Losses
from saas_ssl.methods.training import Trained, train


def losses(w: nn.Module, feed: Feed, _t: float) -> Losses:
    """ℓ(x_l, y_l)."""
    x_l, P_l = feed.labelled()
    return {"labelled": cross_entropy(log_softmax(w(x_l)), P_l)}


def supervised(
    data: PartiallyLabelled, new_network: NewNetwork, settings: Training, generator: Generator
) -> Trained:
    """w = argmin ℓ(x_l, y_l; w), with as long a training as the others have."""
    return train(data, new_network, settings, generator, losses)
