"""GAN with feature matching: Salimans et al., Improved Techniques for Training GANs, NIPS 2016."""

import math

import torch
from pydantic import Field
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from saas_ssl.algorithm.losses import cross_entropy, log_softmax
from saas_ssl.algorithm.network import NewNetwork
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.randomness import global_draws_from
from saas_ssl.methods.feed import Feed
from saas_ssl.methods.settings import Training
from saas_ssl.methods.spending import Losses, spend
from saas_ssl.methods.training import Average, Steps, Trained, averaged
from saas_ssl.vision.augment import Preprocessing
from saas_ssl.vision.networks import build, draw_weights_


class GanFeatureMatching(Training):
    """The generator, its learning rate, and the weight of telling real from generated."""

    latent: int = Field(default=100, ge=1, description="dimensions of z")
    generator_width: int = Field(default=32, ge=1, description="channels of its last but one layer")
    generator_lr: float = Field(
        default=3e-4, gt=0, description="highest learning rate of the generator"
    )
    adversarial_weight: float = Field(
        default=1.0, ge=0, description="of telling real from generated"
    )


def image_generator(shape: tuple[int, ...], latent: int, width: int) -> nn.Module:
    """z -> images in (0, 1): a quarter of the size, doubled twice and cropped."""
    channels, height, wide = shape
    quarter = (math.ceil(height / 4), math.ceil(wide / 4))
    return nn.Sequential(
        nn.Linear(latent, 4 * width * math.prod(quarter), bias=False),
        nn.Unflatten(1, (4 * width, *quarter)),
        nn.BatchNorm2d(4 * width),
        nn.ReLU(),
        nn.ConvTranspose2d(4 * width, 2 * width, 4, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, channels, 3, padding=1),
        nn.Sigmoid(),
        _Crop(height, wide),
    )


def feature_generator(shape: tuple[int, ...], latent: int, width: int) -> nn.Module:
    """z -> features, standardised."""
    return nn.Sequential(
        nn.Linear(latent, 4 * width, bias=False),
        nn.BatchNorm1d(4 * width),
        nn.ReLU(),
        nn.Linear(4 * width, shape[0]),
    )


class _Crop(nn.Module):
    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.height, self.width = height, width

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, : self.height, : self.width]


def new_generator(
    shape: tuple[int, ...], settings: GanFeatureMatching, generator: Generator, device: torch.device
) -> nn.Module:
    """A generator of rows of this shape with fresh weights."""
    kind = image_generator if len(shape) == 3 else feature_generator

    def factory(shape: tuple[int, ...], _K: int, generator: Generator) -> nn.Module:
        return draw_weights_(kind(shape, settings.latent, settings.generator_width), generator)

    return build(factory, shape, 0, generator, device)


def as_seen(made: Tensor, preprocessing: Preprocessing) -> Tensor:
    """What a generator makes, as a network sees real rows."""
    if made.ndim == 2 or preprocessing.zca is not None:
        return made
    return preprocessing.standardise(made)


def with_features(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """(Logits, the input of the last linear layer)."""
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError("feature matching needs a network whose last layer is linear")
    features: list[Tensor] = []
    hook = linear[-1].register_forward_pre_hook(lambda _layer, given: features.append(given[0]))
    try:
        logits = network(x)
    finally:
        hook.remove()
    return logits, features[0]


def real_or_generated(logits_real: Tensor, logits_generated: Tensor) -> Tensor:
    """-½ E log D(x) - ½ E log(1 - D(G(z))), D = Z/(Z + 1), Z = Σ_k exp l_k."""
    real, generated = logits_real.logsumexp(dim=1), logits_generated.logsumexp(dim=1)
    return 0.5 * (softplus(-real).mean() + softplus(generated).mean())


def feature_distance(real: Tensor, generated: Tensor) -> Tensor:
    """|E φ(x) - E φ(G(z))|, mean over the features; the real ones are constants."""
    return (real.detach().mean(dim=0) - generated.mean(dim=0)).abs().mean()


def discriminator_losses(
    w: nn.Module, x_l: Tensor, P_l: Tensor, x_u: Tensor, made: Tensor, weight: float
) -> Losses:
    """ℓ(x_l, y_l) + real or generated, in one pass so that both are normalised alike."""
    logits = w(torch.cat([x_l, x_u, made.detach()]))
    labelled, real, generated = logits.split([len(x_l), len(x_u), len(made)])
    return {
        "labelled": cross_entropy(log_softmax(labelled), P_l),
        "unlabelled": weight * real_or_generated(real, generated),
    }


def generator_loss(w: nn.Module, x_u: Tensor, made: Tensor) -> Tensor:
    """The distance of the mean features of real and generated rows."""
    _, features = with_features(w, torch.cat([x_u, made]))
    real, generated = features.split([len(x_u), len(made)])
    return feature_distance(real, generated)


def gan_feature_matching(
    data: PartiallyLabelled,
    new_network: NewNetwork,
    settings: GanFeatureMatching,
    generator: Generator,
) -> Trained:
    """A classifier that also tells real rows from those of a generator that imitates them."""
    w = new_network(generator).train()
    device = next(w.parameters()).device
    G = new_generator(tuple(data.x.shape[1:]), settings, generator, device).train()
    feed, average = Feed(data, settings, generator, w), Average(w)
    discriminate = Steps(w, settings)
    generate = Steps(G, settings.model_copy(update={"lr": settings.generator_lr}))
    B = settings.unlabelled_batch

    def step(t: float) -> Losses:
        x_l, P_l = feed.labelled()
        x_u = feed.view(feed.unlabelled())
        made = as_seen(G(feed.normal(B, settings.latent)), feed.preprocessing)
        terms = discriminator_losses(w, x_l, P_l, x_u, made, settings.adversarial_weight)
        discriminate.descend(terms["labelled"] + terms["unlabelled"], t)
        if settings.average:
            average.follow(w, settings.average)
        w.requires_grad_(False)  # the second half-step is the generator's alone
        matching = generator_loss(w, feed.view(feed.unlabelled()), made)
        generate.descend(matching, t)
        w.requires_grad_(True)
        return {**terms, "generator": matching}

    with global_draws_from(generator):
        history = spend(settings, w, feed.example(), step)
    return Trained(averaged(w, average, settings), feed.preprocessing, history)
