"""Pseudo-Label: Lee, ICML workshop 2013."""

from functools import partial

import torch
from pydantic import Field
from torch import Generator, nn

from saas_ssl.algorithm.losses import cross_entropy
from saas_ssl.algorithm.network import NewNetwork
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.methods.feed import Feed
from saas_ssl.methods.settings import Training
from saas_ssl.methods.spending import Losses
from saas_ssl.methods.terms import confident_cross_entropy, together
from saas_ssl.methods.training import Trained, train


class PseudoLabel(Training):
    """The weight α(t) of the pseudo-labels: 0 until T1, then rising to α_f at T2."""

    alpha_f: float = Field(default=3.0, ge=0, description="final weight of the pseudo-labels")
    begin: float = Field(
        default=0.1, ge=0, le=1, description="T1, share of the time until they count"
    )
    full: float = Field(default=0.6, ge=0, le=1, description="T2, ... until they count in full")
    threshold: float = Field(
        default=0.0, ge=0, le=1, description="least probability to count at all"
    )


def alpha(t: float, settings: PseudoLabel) -> float:
    """α(t) = α_f (t - T1)/(T2 - T1), within 0 and α_f."""
    if t >= settings.full:
        return settings.alpha_f
    return settings.alpha_f * max(0.0, (t - settings.begin) / (settings.full - settings.begin))


def losses(w: nn.Module, feed: Feed, t: float, settings: PseudoLabel) -> Losses:
    """ℓ(x_l, y_l) + α(t) ℓ(x_u, argmax f(x_u)): the labels are those of the very same outputs."""
    x_l, P_l = feed.labelled()
    log_f, log_u = together(w, x_l, feed.view(feed.unlabelled()))
    unlabelled = confident_cross_entropy(log_u, log_u.exp(), settings.threshold)
    return {
        "labelled": cross_entropy(log_f, P_l),
        "unlabelled": torch.tensor(alpha(t, settings)).to(unlabelled) * unlabelled,
    }


def pseudo_label(
    data: PartiallyLabelled, new_network: NewNetwork, settings: PseudoLabel, generator: Generator
) -> Trained:
    """A network that takes its own answers for true, more and more."""
    return train(data, new_network, settings, generator, partial(losses, settings=settings))
