"""Every method is alive on real images, learns from the unlabelled rows, and counts its cost."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.data.splits import keep_labels
from saas_ssl.methods import METHODS
from saas_ssl.methods.feed import Feed
from saas_ssl.methods.fixmatch import losses as fixmatch_losses
from saas_ssl.methods.freematch import Beliefs
from saas_ssl.methods.freematch import losses as freematch_losses
from saas_ssl.methods.gan_feature_matching import (
    as_seen,
    discriminator_losses,
    generator_loss,
    new_generator,
)
from saas_ssl.methods.mean_teacher import losses as mean_teacher_losses
from saas_ssl.methods.pi_model import losses as pi_model_losses
from saas_ssl.methods.presets import SMALL, original, small
from saas_ssl.methods.pseudo_label import losses as pseudo_label_losses
from saas_ssl.methods.settings import Training
from saas_ssl.methods.spending import Losses, flops_of_pass
from saas_ssl.methods.stochastic_transformations import losses as transformation_losses
from saas_ssl.methods.temporal_ensembling import Ensemble
from saas_ssl.methods.temporal_ensembling import losses as ensembling_losses
from saas_ssl.methods.training import Average, Steps, Trained
from saas_ssl.methods.vat import losses as vat_losses
from saas_ssl.sources.digits import read_digits
from saas_ssl.vision.networks import build, named_factory


@cache
def digits() -> PartiallyLabelled:
    return keep_labels(read_digits(image_size=8), 50, generator_at(0), unlabelled=400)


def upside_down(data: PartiallyLabelled) -> PartiallyLabelled:
    """The unlabelled images turned over: means and spreads of pixels stay as they were."""
    x = data.x.clone()
    x[data.unlabelled_rows] = x[data.unlabelled_rows].flip(2)
    return PartiallyLabelled(x, data.y, data.classes, data.ids)


def new_network(generator: Generator) -> nn.Module:
    return build(named_factory("small_conv", 4), (1, 8, 8), 10, generator)


def train_on(data: PartiallyLabelled, method: str, seed: int = 0, **given: Any) -> Trained:
    settings = small(method, data, {"passes": 3000.0}, given)
    return METHODS[method].train(data, new_network, settings, generator_at(seed))


@cache
def once(method: str) -> Trained:
    return train_on(digits(), method)


def state(network: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


@pytest.mark.parametrize("method", METHODS)
def test_weights_change_and_a_seed_decides_every_bit(method: str) -> None:
    first, again, other = once(method), train_on(digits(), method), train_on(digits(), method, 1)
    assert state(first.network).isfinite().all()
    assert not torch.equal(state(first.network), state(new_network(generator_at(0))))
    assert torch.equal(state(first.network), state(again.network))
    assert first.history == again.history
    assert not torch.equal(state(first.network), state(other.network))
    assert not first.network.training


@pytest.mark.parametrize("method", METHODS)
def test_the_unlabelled_rows_matter(method: str) -> None:
    turned = train_on(upside_down(digits()), method)
    assert torch.equal(state(turned.network), state(once(method).network)) == (
        method == "supervised"
    )


@pytest.mark.parametrize("method", METHODS)
def test_the_budget_is_spent_and_not_more(method: str) -> None:
    passes = once(method).history[-1]["passes"]
    assert 0.85 * 3000 <= passes <= 1.05 * 3000


@pytest.mark.parametrize("method", METHODS)
def test_a_budget_of_time_ends(method: str) -> None:
    # SaaS measures the speed of the machine first.
    settings = small(method, digits(), {"seconds": 6.0 if method == "saas" else 0.4}, {})
    result = METHODS[method].train(digits(), new_network, settings, generator_at(0))
    assert state(result.network).isfinite().all()


@pytest.mark.parametrize("method", METHODS)
def test_the_original_settings_train_too(method: str) -> None:
    smaller: dict[str, Any] = {
        name: 20
        for name in ("unlabelled_batch", "batch_size")
        if name in METHODS[method].settings.model_fields
    }
    settings = original(method, digits(), {"passes": 4000.0}, smaller)
    result = METHODS[method].train(digits(), new_network, settings, generator_at(0))
    assert state(result.network).isfinite().all()


LOSSES: dict[str, Callable[..., Losses]] = {
    "pi_model": pi_model_losses,
    "vat": vat_losses,
    "stochastic_transformations": transformation_losses,
    "pseudo_label": pseudo_label_losses,
    "fixmatch": fixmatch_losses,
}


def unlabelled_term(method: str, w: nn.Module) -> Losses:
    """The losses of the method on some batch, at a time when all of them count."""
    settings: Any = small(method, digits(), {"passes": 1.0}, {})
    feed, t = Feed(digits(), settings, generator_at(2), w), 0.9
    if method == "temporal_ensembling":
        ensemble = Ensemble(400, 10, settings.alpha)
        ensemble.add(torch.arange(400), torch.full((400, 10), 0.1))
        return ensembling_losses(w, feed, t, settings, ensemble)
    if method == "freematch":
        return freematch_losses(w, feed, t, settings, Beliefs(10, 0.5))
    if method == "fixmatch":
        settings = settings.model_copy(update={"threshold": 0.0})
    if method == "mean_teacher":
        teacher = Average(new_network(generator_at(9))).network.to(next(w.parameters()).device)
        losses = mean_teacher_losses(w, teacher, feed, t, settings)
        assert not any(p.requires_grad or p.grad is not None for p in teacher.parameters())
        return losses
    return LOSSES[method](w, feed, t, settings)


@pytest.mark.parametrize("method", [*LOSSES, "temporal_ensembling", "freematch", "mean_teacher"])
def test_the_unlabelled_term_has_a_gradient_in_every_layer(method: str) -> None:
    w = new_network(generator_at(0)).train()
    term = unlabelled_term(method, w)["unlabelled"]
    for gradient in torch.autograd.grad(term, list(w.parameters())):
        assert gradient.abs().max() > 0


@pytest.mark.parametrize("method", [*LOSSES, "temporal_ensembling", "freematch", "mean_teacher"])
def test_losses_are_computed_where_the_network_is(method: str) -> None:
    """On a device without data nothing can wait for a value, and nothing is left on the CPU."""
    w = new_network(generator_at(0)).train().to("meta")
    terms = unlabelled_term(method, w)
    assert {term.device.type for term in terms.values()} == {"meta"}


def test_the_generator_and_the_discriminator_learn_from_their_own_losses() -> None:
    settings: Any = small("gan_feature_matching", digits(), {"passes": 1.0}, {})
    generator = generator_at(0)
    w = new_network(generator).train()
    G = new_generator((1, 8, 8), settings, generator, torch.device("cpu"))
    feed = Feed(digits(), settings, generator, w)
    x_l, P_l = feed.labelled()
    x_u = feed.view(feed.unlabelled())
    made = as_seen(G(feed.normal(50, settings.latent)), feed.preprocessing)
    assert made.shape == x_u.shape
    told = discriminator_losses(w, x_l, P_l, x_u, made, 1.0)["unlabelled"]
    told.backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in w.parameters())
    assert all(p.grad is None for p in G.parameters())
    w.zero_grad(set_to_none=True)
    w.requires_grad_(False)
    generator_loss(w, x_u, made).backward()
    assert all(p.grad is None for p in w.parameters())
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in G.parameters())


def test_adversarial_passes_leave_the_statistics_of_the_network_alone() -> None:
    settings: Any = small("vat", digits(), {"passes": 1.0}, {})
    w = new_network(generator_at(0)).train()
    vat_losses(w, Feed(digits(), settings, generator_at(2), w), 0.0, settings)
    plain = new_network(generator_at(0)).train()
    feed = Feed(digits(), settings, generator_at(2), plain)
    x_l, _ = feed.labelled()
    plain(feed.view(feed.unlabelled()))
    plain(x_l)
    for name, value in plain.named_buffers():
        if "running" in name:
            assert torch.equal(value, dict(w.named_buffers())[name])


COSTS = {  # image passes of a step of 25 labelled and 50 unlabelled rows; forward alone is a third
    "supervised": 25.0,
    "vat": 25 + 50 + 50 * 2 / 3 + 50,  # the power iteration goes back to the input only
    "temporal_ensembling": 25 + 50.0,
    "pi_model": 25 + 2 * 50.0,
    "mean_teacher": 75 + 75 / 3,
    "pseudo_label": 25 + 50.0,
    "fixmatch": 25 + 50 / 3 + 50,
    "freematch": 25 + 50 / 3 + 50,
}


@pytest.mark.parametrize("method", COSTS)
def test_image_passes_are_counted_as_by_hand(method: str) -> None:
    given = {"labelled_batch": 25, "unlabelled_batch": 50}
    last = train_on(digits(), method, **given).history[-1]
    assert last["passes"] / last["steps"] == pytest.approx(COSTS[method], rel=0.06)


def test_an_image_pass_is_linear_in_the_operations_of_the_network() -> None:
    x = torch.randn(2, 6)
    one = flops_of_pass(nn.Linear(6, 5), x)
    assert one == 2 * 6 * 5 * 2  # multiply and add, forward and to the weights
    with pytest.raises(ValueError, match="no layer"):
        flops_of_pass(nn.Sequential(nn.PReLU()), x)


def test_settings_of_the_original_implementations() -> None:
    got: dict[str, Any] = {name: original(name, digits(), {"passes": 1.0}, {}) for name in METHODS}
    vat, match = got["vat"], got["fixmatch"]
    assert (vat.xi, vat.epsilon, vat.power_iterations, vat.smoothness) == (1e-6, 8.0, 1, 1.0)
    assert (vat.optimiser, vat.lr, vat.labelled_batch, vat.unlabelled_batch) == (
        *("adam", 1e-3),
        *(32, 128),
    )
    assert (match.threshold, match.lr, match.average, match.weight_decay) == (
        *(0.95, 0.03),
        *(0.999, 5e-4),
    )
    assert (match.labelled_batch * 7, match.schedule) == (match.unlabelled_batch, "cosine")
    ensemble, pi = got["temporal_ensembling"], got["pi_model"]
    assert (ensemble.alpha, ensemble.consistency, pi.consistency) == (0.6, 30.0, 100.0)
    assert (ensemble.lr, ensemble.noise, ensemble.momentum, ensemble.final_momentum) == (
        *(0.003, 0.15),
        *(0.9, 0.5),
    )
    teacher, gan = got["mean_teacher"], got["gan_feature_matching"]
    assert (teacher.early_decay, teacher.decay, teacher.consistency) == (0.99, 0.999, 100.0)
    assert (gan.lr, gan.generator_lr, gan.momentum, gan.augmentation) == (3e-4, 3e-4, 0.5, "none")
    transformations = got["stochastic_transformations"]
    assert (transformations.views, transformations.stability, transformations.exclusivity) == (
        *(5, 1.0),
        0.1,
    )
    assert (got["saas"].inner_epochs, got["saas"].batch_size) == (40, 100)


def test_every_method_has_small_settings() -> None:
    assert list(SMALL) == list(METHODS)


def test_data_without_unlabelled_rows_are_refused() -> None:
    full = read_digits(image_size=8)
    for method in METHODS:
        with pytest.raises(ValueError, match="unlabelled"):
            METHODS[method].train(
                full,
                new_network,
                small(method, digits(), {"passes": 100.0}, {}),
                generator_at(0),
            )


def test_training_that_diverges_says_so() -> None:
    with pytest.raises(ValueError, match=r"diverged.*lower lr"):
        train_on(digits(), "supervised", lr=1e30)


def test_an_average_is_the_mean_at_first_and_then_forgets() -> None:
    w = nn.Linear(1, 1, bias=False)
    average, values = Average(w), [3.0, 6.0, 0.0, 9.0]
    expected, decay = 0.0, 0.5
    for n, value in enumerate(values, start=1):
        w.weight.data.fill_(value)
        average.follow(w, decay)
        share = max(1 - decay, 1 / n)
        expected = (1 - share) * expected + share * value
    (mean,) = average.network.parameters()
    assert mean.item() == pytest.approx(expected)
    assert not mean.requires_grad


def test_momentum_may_change_at_the_end() -> None:
    """As in Temporal Ensembling, whose Adam ends with a first momentum of 0.5."""
    settings = Training(passes=1.0, optimiser="adam", momentum=0.9, final_momentum=0.5)
    w = nn.Linear(1, 1)
    steps = Steps(w, settings)
    for t, beta in ((0.0, 0.9), (0.8, 0.9), (1.0, 0.5 + 0.4 * math.exp(-12.5))):
        steps.descend(w(torch.ones(1, 1)).sum(), t)
        assert steps._optimiser.param_groups[0]["betas"][0] == pytest.approx(beta)
