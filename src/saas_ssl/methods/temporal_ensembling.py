"""Temporal Ensembling: Laine and Aila, ICLR 2017."""

from functools import partial

import torch
from pydantic import Field
from torch import Generator, Tensor, nn

from saas_ssl.algorithm.losses import cross_entropy
from saas_ssl.algorithm.network import NewNetwork
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.schedules import ramp_up
from saas_ssl.methods.feed import Feed
from saas_ssl.methods.settings import Training
from saas_ssl.methods.spending import Losses
from saas_ssl.methods.terms import together
from saas_ssl.methods.training import Trained, train


class TemporalEnsembling(Training):
    """w_max and how long the weight takes to reach it, and the momentum α of the ensemble."""

    consistency: float = Field(
        default=30.0, ge=0, description="w_max, the weight of the difference"
    )
    ramp_up: float = Field(
        default=80 / 300, ge=0, le=1, description="share of the time until w_max"
    )
    alpha: float = Field(default=0.6, ge=0, lt=1, description="momentum of the averages of outputs")


class Ensemble:
    """Z_i <- α Z_i + (1 - α) z_i whenever row i is seen; z̃_i = Z_i / (1 - αⁿ) after n times."""

    def __init__(self, N_u: int, K: int, alpha: float) -> None:
        self.Z, self.seen, self.alpha = torch.zeros(N_u, K), torch.zeros(N_u, 1), alpha

    def targets(self, i: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """(z̃ of these rows, whether they were ever seen), where the outputs are."""
        self.Z, self.seen = self.Z.to(device), self.seen.to(device)
        Z, known = self.Z[i], self.seen[i] > 0
        return Z / (1 - self.alpha ** self.seen[i]).where(known, Z.new_ones(())), known

    def add(self, i: Tensor, z: Tensor) -> None:
        """The outputs for these rows at this visit."""
        self.Z[i] = self.alpha * self.Z[i] + (1 - self.alpha) * z.detach().to(self.Z)
        self.seen[i] += 1


def losses(
    w: nn.Module, feed: Feed, t: float, settings: TemporalEnsembling, ensemble: Ensemble
) -> Losses:
    """ℓ(x_l, y_l) + w(t) ‖z̃ - f(g(x_u))‖², zero for rows that are seen for the first time."""
    x_l, P_l = feed.labelled()
    i, rows = feed.numbered()
    log_f, log_z = together(w, x_l, feed.view(rows))
    z = log_z.exp()
    target, known = (part.to(z) for part in ensemble.targets(i, z.device))
    ensemble.add(i, z)
    weight = settings.consistency * ramp_up(t, settings.ramp_up)
    return {
        "labelled": cross_entropy(log_f, P_l),
        "unlabelled": weight * (known * (z - target).square()).mean(),
    }


def temporal_ensembling(
    data: PartiallyLabelled,
    new_network: NewNetwork,
    settings: TemporalEnsembling,
    generator: Generator,
) -> Trained:
    """A network that answers as it did on average at earlier visits of an image."""
    ensemble = Ensemble(len(data.unlabelled_rows), data.n_classes, settings.alpha)
    own = partial(losses, settings=settings, ensemble=ensemble)
    return train(data, new_network, settings, generator, own)
