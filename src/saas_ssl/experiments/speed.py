"""Learning speed itself: the training loss of a fresh network, epoch by epoch."""

from itertools import islice

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from saas_ssl.algorithm.batches import steps_per_epoch, whole_passes
from saas_ssl.algorithm.descent import Descent
from saas_ssl.algorithm.losses import cross_entropy, log_softmax
from saas_ssl.algorithm.randomness import generator_at, global_draws_from
from saas_ssl.training.devices import Place
from saas_ssl.training.presets import Settings
from saas_ssl.vision.augment import fit_preprocessing
from saas_ssl.vision.networks import build, named_factory


def training_losses(
    x: Tensor, y: Tensor, K: int, settings: Settings, place: Place, seed: int, epochs: int
) -> list[float]:
    """Mean of ℓ(x, y; w_t) over each epoch of plain SGD: no augmentation, no weight decay.

    The learning rate is that of phase two and stays as it is, as in Fig. 1 of the paper.
    """
    factory = named_factory(settings.network, settings.width)
    w = build(factory, tuple(x.shape[1:]), K, generator_at(seed, "weights"), place.device)
    see = fit_preprocessing(x, settings.whiten).to(place.device)
    x, target, total = place.resident(x), one_hot(y, K), torch.zeros((), device=place.device)
    sgd = Descent(w.train(), settings.momentum, 0, total, ())
    sgd.set_rate(settings.classifier_lr)
    steps = steps_per_epoch(len(x), settings.batch_size)
    batches = whole_passes(len(x), steps, generator_at(seed, "batches"))
    losses = []
    with global_draws_from(generator_at(seed, "layers")):
        for n in range(epochs):
            sgd.begin(n)
            for i in islice(batches, steps):
                log_f = log_softmax(w(see(x[i])))
                loss = cross_entropy(log_f, target[i].to(log_f))
                sgd.descend(loss)
                sgd.sum += loss.detach()
            losses.append(sgd.sum.item() / steps)
    return losses
