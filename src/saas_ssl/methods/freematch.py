"""FreeMatch: Wang et al., ICLR 2023."""

from functools import partial

import torch
from pydantic import Field
from torch import Generator, Tensor, nn
from torch.nn.functional import one_hot

from saas_ssl.algorithm.losses import cross_entropy, log_softmax
from saas_ssl.algorithm.network import NewNetwork
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.methods.feed import Feed
from saas_ssl.methods.settings import Training
from saas_ssl.methods.spending import Losses
from saas_ssl.methods.terms import confident_cross_entropy, together
from saas_ssl.methods.training import Trained, train


class FreeMatch(Training):
    """How slowly the thresholds follow, and the weights of the two losses."""

    decay: float = Field(
        default=0.999, ge=0, lt=1, description="λ, of the averages behind the thresholds"
    )
    unlabelled_weight: float = Field(default=1.0, ge=0, description="w_u, of the unlabelled loss")
    fairness: float = Field(default=0.001, ge=0, description="w_f, of the fairness of the classes")


class Beliefs:
    """τ, p̃ and h̃: averages of the confidence, of the outputs and of the labels they imply."""

    def __init__(self, K: int, decay: float) -> None:
        self.decay, self.tau = decay, torch.tensor(1.0 / K)
        self.p, self.h = (torch.full((K,), 1.0 / K) for _ in range(2))

    def follow(self, q: Tensor) -> None:
        """One step after the outputs for a batch."""
        top, label = q.max(dim=1)
        histogram = one_hot(label, q.shape[1]).to(q).mean(dim=0)
        new = 1 - self.decay
        self.tau = torch.lerp(self.tau.to(q), top.mean(), new)
        self.p = torch.lerp(self.p.to(q), q.mean(dim=0), new)
        self.h = torch.lerp(self.h.to(q), histogram, new)

    def thresholds(self) -> Tensor:
        """τ(c) = τ p̃(c) / max p̃, for each class."""
        return self.tau * self.p / self.p.max()


def normalised(p: Tensor, h: Tensor) -> Tensor:
    """SumNorm(p/h): probabilities by the share of their class, which counts only where present."""
    ratio = torch.where(h > 0, p / h.where(h > 0, torch.ones_like(h)), torch.zeros_like(p))
    return ratio / ratio.sum().clamp(min=torch.finfo(p.dtype).tiny)


def fairness(log_strong: Tensor, sure: Tensor, beliefs: Beliefs) -> Tensor:
    """-H(SumNorm(p̃/h̃), SumNorm(p̄/h̄)) as published, p̄ and h̄ over the strong views of sure rows."""
    f, counts = log_strong.exp(), sure.to(log_strong)[:, None]
    n = counts.sum().clamp(min=1)
    h = (one_hot(f.argmax(dim=1), f.shape[1]) * counts).sum(dim=0) / n
    wanted = normalised(beliefs.p.to(f), beliefs.h.to(f))
    got = normalised((f * counts).sum(dim=0) / n, h)
    return sure.any().to(f) * (wanted * torch.log(got + 1e-12)).sum()


def losses(w: nn.Module, feed: Feed, _t: float, settings: FreeMatch, beliefs: Beliefs) -> Losses:
    """FixMatch with thresholds of its own making for each class, and a loss for their fairness."""
    x_l, P_l = feed.labelled()
    rows = feed.unlabelled()
    with torch.no_grad():
        q = log_softmax(w(feed.weak(rows))).exp()
        beliefs.follow(q)
        top, label = q.max(dim=1)
        threshold = beliefs.thresholds()[label]
    log_f, log_strong = together(w, x_l, feed.strong(rows))
    unlabelled = confident_cross_entropy(log_strong, q, threshold)
    return {
        "labelled": cross_entropy(log_f, P_l),
        "unlabelled": settings.unlabelled_weight * unlabelled,
        "fairness": settings.fairness * fairness(log_strong, top >= threshold, beliefs),
    }


def freematch(
    data: PartiallyLabelled, new_network: NewNetwork, settings: FreeMatch, generator: Generator
) -> Trained:
    """FixMatch that finds out itself how sure is sure enough."""
    beliefs = Beliefs(data.n_classes, settings.decay)
    own = partial(losses, settings=settings, beliefs=beliefs)
    return train(data, new_network, settings, generator, own)
