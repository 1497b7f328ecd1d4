"""Settings reach the algorithm, and SaaS beats its supervised baseline on bundled data."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, nn

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.posterior import hard_labels
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.data.splits import hold_out, keep_labels
from saas_ssl.sources.digits import read_digits
from saas_ssl.training.outputs import error_rate, predict
from saas_ssl.training.pipeline import (
    infer_posterior,
    initial_passes,
    initial_posterior,
    supervised_epochs,
    train_classifier,
    train_supervised,
)
from saas_ssl.training.presets import PRESETS, Settings, named_preset
from saas_ssl.training.problem import prepare
from small_problems import FEATURES, features, with_
from toy import blobs, last


def test_beats_the_supervised_baseline_on_digits() -> None:
    """A fifth of the demo's cost: a narrower network, fewer outer iterations and epochs."""
    rest, test = hold_out(read_digits(), 450, generator_at(0, "test"))
    data = keep_labels(rest, 50, generator_at(5, "kept labels"))
    settings = named_preset("digits").changed(width=8, outer_iterations=3, classifier_epochs=8)
    problem = prepare(data, settings, seed=5)
    outer = last(infer_posterior(problem))
    epoch = last(train_classifier(problem, outer.P_u))
    baseline = last(train_supervised(problem))
    truth = rest.y[data.unlabelled_rows]
    wrong = (hard_labels(outer.P_u) != truth).double().mean().item()
    saas, supervised = (
        error_rate(network.w, problem.preprocessing, test) for network in (epoch, baseline)
    )
    assert saas < 0.8 * supervised
    assert wrong < 0.8 * supervised


def test_same_seed_same_bits_from_end_to_end() -> None:
    def once(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        data = keep_labels(read_digits(image_size=8), 50, generator_at(0))
        settings = named_preset("digits").changed(
            width=2, outer_iterations=1, inner_epochs=1, classifier_epochs=1
        )
        problem = prepare(data, settings, seed)
        outer = next(infer_posterior(problem))
        epoch = next(train_classifier(problem, outer.P_u))
        return outer.P_u, predict(epoch.w, problem.preprocessing, data.x)

    first, again, other = once(3), once(3), once(4)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize(
    "change",
    [
        {"network": "mlp", "width": 8},
        {"inner_epochs": 1},
        {"weight_lr": 0.02},
        {"momentum": 0.5},
        {"posterior_lr": 1.0},
        {"min_probability": 0.01},
        {"entropy_weight": 0.0},
        {"langevin_temperature": 0.1},
        {"batch_size": 10},
        {"labelled_batch_size": 3},
        {"inner_schedule": "triangular"},
        {"weights": "reset"},
        {"update": "joint"},
        {"gradient_at": "after"},
        {"initial_posterior": "random-class"},
        {"initial_posterior": "uniform"},
        {"stability_tolerance": 1.1, "stability_patience": 1},
        {"outer_iterations": 1},
        {"whiten": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_setting_of_phase_one_reaches_it(change: dict[str, Any]) -> None:
    def final(settings: Settings) -> tuple[int, torch.Tensor]:
        outers = list(infer_posterior(prepare(features(), settings, seed=0)))
        return len(outers), outers[-1].dP_u

    (n, dP_u), (n_changed, dP_u_changed) = final(FEATURES), final(with_(**change))
    if change.keys() == {"posterior_lr"}:
        assert not torch.equal(dP_u, dP_u_changed)
    assert n != n_changed or not torch.allclose(dP_u, dP_u_changed, atol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"classifier_lr": 0.05},
        {"classifier_weight_decay": 0.1},
        {"classifier_schedule": "constant"},
        {"classifier_epochs": 5},
        {"classifier_schedule": "halving", "classifier_patience": 1, "classifier_final_lr": 0.06},
        {"validation_share": 0.5},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_setting_of_phase_two_reaches_it(change: dict[str, Any]) -> None:
    data = features(labelled_per_class=20)

    def final(settings: Settings) -> torch.Tensor:
        problem = prepare(data, settings, seed=0)
        epoch = last(train_classifier(problem, initial_posterior(problem)))
        return predict(epoch.w, problem.preprocessing, data.x)

    assert not torch.allclose(final(FEATURES), final(with_(**change)), atol=1e-6)


def test_augmentation_of_each_phase_is_its_own() -> None:
    data = keep_labels(read_digits(image_size=8), 50, generator_at(0))
    tiny = {"width": 2, "outer_iterations": 1, "inner_epochs": 1, "classifier_epochs": 1}
    base = named_preset("digits").changed(**tiny)

    def results(**change: Any) -> tuple[torch.Tensor, torch.Tensor]:
        problem = prepare(data, base.changed(**change), seed=0)
        P_u = initial_posterior(problem)
        outer, epoch = next(infer_posterior(problem)), next(train_classifier(problem, P_u))
        return outer.dP_u, predict(epoch.w, problem.preprocessing, data.x[:50])

    dP_u, f = results()
    weak_dP_u, weak_f = results(classifier_augmentation="same")
    assert torch.equal(dP_u, weak_dP_u)
    assert not torch.equal(f, weak_f)
    assert torch.equal(f, results(classifier_augmentation="strong-digits")[1])


def test_halving_follows_validation_accuracy_where_there_is_validation() -> None:
    settings = with_(classifier_schedule="halving", classifier_patience=2, classifier_final_lr=0.03)
    with_validation = prepare(features(labelled_per_class=20), settings, seed=0)
    scores = [epoch.score for epoch in train_supervised(with_validation)]
    assert with_validation.validation is not None
    assert all(0.0 <= score <= 1.0 for score in scores)
    without = prepare(features(labelled_per_class=5), settings, seed=0)
    epoch = next(train_supervised(without))
    assert without.validation is None
    assert epoch.score == -epoch.loss


def test_the_baseline_gets_as_many_image_passes_as_phase_two() -> None:
    problem = prepare(features(), with_(classifier_epochs=50), seed=0)
    passes = problem.passes(50)
    assert problem.supervised_passes(supervised_epochs(problem)) == pytest.approx(passes, rel=0.01)
    assert len(list(train_supervised(problem))) == supervised_epochs(problem)


def test_any_factory_works() -> None:
    def users_own(in_shape: tuple[int, ...], n_classes: int, _generator: Generator) -> nn.Module:
        return nn.Linear(in_shape[0], n_classes)

    problem = prepare(features(), FEATURES, seed=0, network=users_own)
    first, again = (next(infer_posterior(problem)) for _ in range(2))
    assert first.w.keys() == {"weight", "bias"}
    assert torch.equal(first.dP_u, again.dP_u)


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_a_network_with_the_wrong_number_of_outputs_is_refused(outputs: int) -> None:
    def users_own(in_shape: tuple[int, ...], _n_classes: int, _generator: Generator) -> nn.Module:
        return nn.Linear(in_shape[0], outputs)

    with pytest.raises(ValueError, match="one for each of the 3 classes"):
        prepare(features(), FEATURES, seed=0, network=users_own)


def test_a_batch_too_small_for_the_network_is_refused_before_any_work() -> None:
    with pytest.raises(ValueError, match="cannot take a step on a single row"):
        prepare(features(), with_(labelled_batch_size=1), seed=0)


def test_double_precision_features_work() -> None:
    data, _ = blobs()
    assert data.x.dtype == torch.float64
    assert next(infer_posterior(prepare(data, FEATURES, seed=0))).P_u.isfinite().all()


def test_one_compiled_network_can_serve_every_outer_iteration() -> None:
    from saas_ssl.algorithm.network import redraw_
    from saas_ssl.algorithm.phases import phase_one
    from saas_ssl.vision.networks import build, named_factory

    data, problem = features(), prepare(features(), FEATURES, seed=0)
    kept: Any = torch.compile(problem.new_network(generator_at(0)), backend="eager")

    def redrawn(generator: Generator) -> nn.Module:
        return redraw_(kept, build(named_factory("mlp", 16), (2,), 3, generator))

    options: dict[str, Any] = {"T": 2, "M": 2, "seed": 0, "B": 20}
    ours, fresh = (
        list(phase_one(data, new, lambda x, _: x, **options))
        for new in (redrawn, problem.new_network)
    )
    assert torch.allclose(ours[-1].P_u, fresh[-1].P_u, atol=1e-6)


def test_autocast_networks_work() -> None:
    """Mixed precision is a matter of the network: bfloat16 logits are scored in float32."""

    class Bfloat16(nn.Module):
        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits: torch.Tensor = self.network(x)
            return logits

    def factory(in_shape: tuple[int, ...], n_classes: int, generator: Generator) -> nn.Module:
        from saas_ssl.vision.networks import mlp

        return Bfloat16(mlp(in_shape, n_classes, generator, width=16))

    outer = next(infer_posterior(prepare(features(), FEATURES, seed=0, network=factory)))
    assert outer.dP_u.dtype == torch.float32
    assert outer.dP_u.isfinite().all()


@pytest.mark.parametrize("name", PRESETS)
def test_presets_build_and_their_options_are_consistent(name: str) -> None:
    """One shortened outer iteration and epoch, with narrow networks and few images."""
    x = torch.randint(0, 256, (60, 3, 16, 16), generator=generator_at(0), dtype=torch.uint8)
    y = torch.arange(60) % 4
    data = keep_labels(
        PartiallyLabelled(x, y, list("abcd"), list(map(str, range(60)))), 12, generator_at(0)
    )
    short = {"width": 4, "inner_epochs": 1, "batch_size": 24, "labelled_batch_size": None}
    problem = prepare(data, named_preset(name).changed(**short), seed=0)
    outer = next(infer_posterior(problem))
    epoch = next(train_classifier(problem, outer.P_u))
    assert outer.P_u.isfinite().all()
    assert predict(epoch.w, problem.preprocessing, data.x).shape == (60, 4)


def test_paper_presets_are_the_paper_s_numbers() -> None:
    cifar10, svhn = PRESETS["paper-cifar10"], PRESETS["paper-svhn"]
    for preset in (cifar10, svhn):
        assert preset.network == "resnet18"
        assert (preset.weight_lr, preset.momentum, preset.posterior_lr) == (0.01, 0.9, 1.0)
        assert (preset.entropy_weight, preset.batch_size) == (1.0, 100)
        assert preset.langevin_temperature == 1e-5
        assert preset.classifier_augmentation == "same"
        assert (preset.classifier_lr, preset.classifier_final_lr) == (0.1, 0.001)
        assert preset.classifier_patience == 50
    assert (cifar10.inner_epochs, cifar10.outer_iterations) == (40, 135)
    assert (svhn.inner_epochs, svhn.outer_iterations) == (5, 75)
    rows = keep_labels(read_digits(image_size=8), 200, generator_at(0))
    problem = prepare(rows, cifar10.changed(**{"network": "small_conv"}), seed=0)
    assert problem.alpha == 0.05  # K = 10
    assert problem.effective_step == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"min_probability": 0.4}, "infeasible for 3 classes"),
        ({"batch_size": 1000}, "batch of 1000 unlabelled rows"),
        ({"network": "vgg"}, "unknown network 'vgg'"),
        ({"network": "resnet18"}, "takes images"),
        ({"augmentation": "cifar10"}, "for features choose features or none"),
        ({"augmentation": "cifar11"}, "unknown augmentation 'cifar11'"),
    ],
)
def test_bad_settings_are_refused_before_any_work(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        prepare(features(), with_(**change), seed=0)


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (lambda y: torch.full_like(y, -1), "no labelled rows"),
        (lambda y: torch.where(y == 1, -1, y), "no row is labelled 'class 1'"),
        (lambda y: torch.where(y == 1, 0, y.clamp(min=0)), "no row is labelled 'class 1'"),
    ],
)
def test_bad_labels_are_refused_before_any_work(labels: Any, sentence: str) -> None:
    data = features()
    with pytest.raises(ValueError, match=sentence):
        prepare(data.with_labels(labels(data.y)), FEATURES, seed=0)


def test_full_labels_are_good_for_the_baseline_alone() -> None:
    data = features()
    problem = prepare(data.with_labels(data.y.clamp(min=0)), FEATURES, seed=0)
    epochs = list(train_supervised(problem))
    assert len(epochs) == FEATURES.classifier_epochs
    with pytest.raises(ValueError, match="no unlabelled rows"):
        next(infer_posterior(problem))


def test_a_supervised_posterior_is_the_mean_of_networks_that_know_the_labelled_rows() -> None:
    data, truth = blobs()
    data = PartiallyLabelled(data.x.float(), data.y, data.classes, data.ids)
    problem = prepare(data, with_(initial_posterior="supervised"), seed=0)
    P_u = initial_posterior(problem)
    assert torch.equal(P_u, initial_posterior(problem))
    assert not torch.equal(P_u, initial_posterior(replace(problem, seed=1)))
    assert P_u.shape == (len(data.unlabelled_rows), data.n_classes)
    assert P_u.min() >= problem.alpha - 1e-6
    torch.testing.assert_close(P_u.sum(dim=1), torch.ones(len(P_u)))
    wrong = (hard_labels(P_u) != truth[data.unlabelled_rows]).double().mean().item()
    assert wrong < 0.2
    # Three networks of a hundred steps, each with the labelled rows twice.
    assert initial_passes(problem) == 3 * problem.supervised_passes(100)
    assert initial_passes(prepare(data, FEATURES, seed=0)) == 0
    assert next(infer_posterior(problem)).P_u.shape == P_u.shape


def test_unknown_settings_and_presets_are_errors() -> None:
    with pytest.raises(ValueError, match="Extra inputs are not permitted"):
        Settings.model_validate({"inner_epoch": 3})
    with pytest.raises(ValueError, match="Extra inputs are not permitted"):
        FEATURES.changed(inner_epoch=3)
    with pytest.raises(ValueError, match="finite number"):
        FEATURES.changed(posterior_lr=float("inf"))
    with pytest.raises(ValueError, match="classifier_lr must be above classifier_final_lr"):
        Settings(classifier_lr=0.001)
    with pytest.raises(ValueError, match="unknown preset 'fast': choose one of digits"):
        named_preset("fast")
