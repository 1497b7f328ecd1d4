"""From data and settings to both phases of the algorithm: everything resolved, nothing written."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from saas_ssl.algorithm import Epoch, Outer, phase_one, phase_two
from saas_ssl.augment import Preprocessing, View, augmented_view, fit_preprocessing, named_recipe
from saas_ssl.batches import image_passes, steps_per_epoch
from saas_ssl.checks import check_phase_one
from saas_ssl.data.partially_labelled import PartiallyLabelled
from saas_ssl.data.splits import split_validation
from saas_ssl.losses import log_softmax
from saas_ssl.networks import NetworkFactory, NewNetwork, build, named_factory
from saas_ssl.posterior import INITIAL_POSTERIORS
from saas_ssl.presets import Settings
from saas_ssl.randomness import generator_at, global_draws_from
from saas_ssl.schedules import SCHEDULES, Rate, fixed_length, halving

_ROWS_AT_ONCE = 512


@dataclass(frozen=True)
class Problem:
    """Data and settings, resolved: what both phases and the supervised baseline work on."""

    data: PartiallyLabelled  # all rows
    training: PartiallyLabelled  # those without the validation rows, in the same order
    validation: PartiallyLabelled | None
    settings: Settings  # nothing left to be derived
    seed: int
    preprocessing: Preprocessing
    new_network: NewNetwork
    alpha: float
    B: int
    B_l: int

    @property
    def effective_step(self) -> float:
        """η_P T / |B|: how far one outer iteration moves P_u per nat of mean log-likelihood."""
        return self.settings.posterior_lr * self.settings.inner_epochs / self.B

    @property
    def probe(self) -> PartiallyLabelled:
        """Given labels to measure networks on: validation rows, or the training rows themselves."""
        return self.training if self.validation is None else self.validation

    @property
    def supervised_B(self) -> int:  # noqa: N802
        """|B| where the labelled rows stand in for the unlabelled ones."""
        return min(self.B, len(self.training.labelled_rows))

    def passes(self, epochs: int = 1) -> int:
        """Images that so many epochs of either phase take through the network."""
        return image_passes(len(self.training.unlabelled_rows), self.B, self.B_l, epochs)

    def supervised_passes(self, epochs: int = 1) -> int:
        """Images that so many epochs of the supervised baseline take through the network."""
        rows = len(self.training.labelled_rows)
        return image_passes(rows, self.supervised_B, self.B_l, epochs)


def prepare(
    data: PartiallyLabelled, settings: Settings, seed: int, network: NetworkFactory | None = None
) -> Problem:
    """Check everything, set validation rows apart, and fit the preprocessing on the training rows.

    `network` is any factory; without one it is the network that the settings name.
    """
    training, validation = split_validation(
        data, settings.validation_share, generator_at(seed, "validation")
    )
    B, K = settings.batch_size, data.n_classes
    B_l = settings.labelled_batch_size or min(B, len(training.labelled_rows))
    alpha = 0.5 / K if settings.min_probability is None else settings.min_probability
    check_phase_one(
        training,
        None,
        (),
        settings.inner_epochs,
        B,
        B_l,
        alpha,
        settings.stability_patience,
        weights=settings.weights,
        update=settings.update,
        gradient_at=settings.gradient_at,
    )
    preprocessing = fit_preprocessing(training.x, settings.whiten, training.rows)
    factory = network or named_factory(settings.network, settings.width)
    new_network = partial(build, factory, tuple(data.x.shape[1:]), K)
    base = settings.augmentation
    followed = {"same": base, "strong": f"strong-{base.removeprefix('strong-')}"}
    wish = settings.classifier_augmentation
    resolved = settings.changed(
        min_probability=alpha,
        labelled_batch_size=B_l,
        classifier_augmentation=followed.get(wish, wish),
    )
    problem = Problem(
        data, training, validation, resolved, seed, preprocessing, new_network, alpha, B, B_l
    )
    _try_smallest_batches(problem)
    return problem


def _try_smallest_batches(problem: Problem) -> None:
    """What would only fail an hour later fails now: each view, and a step of the network on it."""
    data, settings = problem.training, problem.settings
    N_u, N_l = len(data.unlabelled_rows), len(data.labelled_rows)
    smallest = min(
        problem.B_l,
        N_u // steps_per_epoch(N_u, problem.B),
        N_l // steps_per_epoch(N_l, problem.supervised_B),
    )
    generator = generator_at(problem.seed, "trial")
    network = problem.new_network(generator).train()
    for name in (settings.augmentation, settings.classifier_augmentation):
        rows = _view(problem, name)(data.x[data.rows[:smallest]], generator)
        try:
            with global_draws_from(generator):
                logits = network(rows)
        except ValueError as error:
            if smallest > 1:
                raise
            raise ValueError(
                "the network cannot take a step on a single row: there must be at least two "
                "labelled and two unlabelled rows, and batches of two"
            ) from error
        if logits.shape != (smallest, data.n_classes):
            raise ValueError(
                f"the network gives {tuple(logits.shape)} outputs for a batch of {smallest} rows, "
                f"but it must give one for each of the {data.n_classes} classes"
            )


def infer_posterior(problem: Problem, P_u: Tensor | None = None) -> Iterator[Outer]:
    """Phase one, from the given posterior or from the initial one that the settings name."""
    settings, seed = problem.settings, problem.seed
    if P_u is None:
        P_u = initial_posterior(problem)
    return phase_one(
        problem.training,
        problem.new_network,
        _view(problem, settings.augmentation),
        seed=seed,
        T=settings.inner_epochs,
        M=settings.outer_iterations,
        eta_w=settings.weight_lr,
        eta_P=settings.posterior_lr,
        alpha=problem.alpha,
        beta=settings.entropy_weight,
        momentum=settings.momentum,
        langevin=settings.langevin_temperature,
        B=problem.B,
        B_l=problem.B_l,
        schedule=SCHEDULES[settings.inner_schedule],
        weights=settings.weights,
        update=settings.update,
        gradient_at=settings.gradient_at,
        tolerance=settings.stability_tolerance,
        patience=settings.stability_patience,
        P_u=P_u,
    )


def initial_posterior(problem: Problem) -> Tensor:
    """P_u before the first outer iteration."""
    draw = INITIAL_POSTERIORS[problem.settings.initial_posterior]
    data = problem.training
    return draw(
        len(data.unlabelled_rows),
        data.n_classes,
        problem.alpha,
        generator_at(problem.seed, "posterior"),
    )


def train_classifier(problem: Problem, P_u: Tensor) -> Iterator[Epoch]:
    """Phase two, on the hard labels of the posterior and the given ones."""
    return _phase_two(problem, P_u, problem.B, problem.settings.classifier_epochs)


def train_supervised(problem: Problem) -> Iterator[Epoch]:
    """Phase two on the labelled rows alone, with the same settings and as many image passes."""
    return _phase_two(problem, None, problem.supervised_B, supervised_epochs(problem))


def supervised_epochs(problem: Problem) -> int:
    """Epochs over the labelled rows that take as many image passes as phase two does."""
    passes = problem.passes(problem.settings.classifier_epochs)
    return max(1, round(passes / problem.supervised_passes()))


def _phase_two(problem: Problem, P_u: Tensor | None, B: int, epochs: int) -> Iterator[Epoch]:
    settings = problem.settings
    return phase_two(
        problem.training,
        P_u,
        problem.new_network,
        _view(problem, settings.classifier_augmentation),
        seed=problem.seed,
        rate=_rate(settings, epochs),
        momentum=settings.momentum,
        weight_decay=settings.classifier_weight_decay,
        B=B,
        B_l=problem.B_l,
        score=partial(_score, problem),
    )


def _rate(settings: Settings, epochs: int) -> Rate:
    if settings.classifier_schedule == "halving":
        return halving(
            settings.classifier_lr, settings.classifier_patience, settings.classifier_final_lr
        )
    return fixed_length(settings.classifier_lr, epochs, SCHEDULES[settings.classifier_schedule])


def _score(problem: Problem, network: nn.Module, loss: float) -> float:
    """Validation accuracy, or the training loss where there is no validation set."""
    if problem.validation is None:
        return -loss
    return 1.0 - error_rate(network, problem.preprocessing, problem.validation)


def _view(problem: Problem, name: str) -> View:
    return augmented_view(named_recipe(name), problem.preprocessing, problem.training.x.ndim)


def predict(
    network: nn.Module, preprocessing: Preprocessing, x: Tensor, rows: Tensor | None = None
) -> Tensor:
    """f_w(x) for rows as stored, all or some, without augmentation: (N, K) probabilities."""
    rows = torch.arange(len(x)) if rows is None else rows
    network.eval()
    with torch.no_grad():
        return torch.cat(
            [
                log_softmax(network(preprocessing(x[block]))).exp().cpu()
                for block in rows.split(_ROWS_AT_ONCE)
            ]
        )


def error_rate(network: nn.Module, preprocessing: Preprocessing, data: PartiallyLabelled) -> float:
    """The share of the labelled rows that the network gets wrong."""
    return wrong_rows(network, preprocessing, data).double().mean().item()


def wrong_rows(network: nn.Module, preprocessing: Preprocessing, data: PartiallyLabelled) -> Tensor:
    """Whether the network gets a labelled row wrong, for each of them in order."""
    rows = data.labelled_rows
    return predict(network, preprocessing, data.x, rows).argmax(dim=1) != data.y[rows]
