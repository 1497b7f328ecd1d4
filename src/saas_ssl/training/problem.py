"""From data and settings to what both phases and the baseline work on: everything resolved."""

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn

from saas_ssl.algorithm.batches import image_passes, steps_per_epoch
from saas_ssl.algorithm.checks import check_batch, check_labels, check_phase_one
from saas_ssl.algorithm.network import NewNetwork, View, redraw_
from saas_ssl.algorithm.partially_labelled import SET_ASIDE, PartiallyLabelled
from saas_ssl.algorithm.randomness import generator_at, global_draws_from
from saas_ssl.data.splits import split_validation
from saas_ssl.training.devices import CPU, Place
from saas_ssl.training.presets import Settings
from saas_ssl.training.ranks import ALONE, Ranks
from saas_ssl.vision.augment import Preprocessing, augmented_view, fit_preprocessing, named_recipe
from saas_ssl.vision.networks import NetworkFactory, build, named_factory


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
    reviewed: Tensor  # (N,) whether a row was labelled because it was doubtful
    place: Place = CPU
    ranks: Ranks = ALONE

    @property
    def fair(self) -> PartiallyLabelled:
        """All rows but those whose labels are no fair sample, because they were chosen."""
        return self.data.with_labels(torch.where(self.reviewed, SET_ASIDE, self.data.y))

    @property
    def effective_step(self) -> float:
        """η_P T / |B|: how far one outer iteration moves P_u per nat of mean log-likelihood."""
        return self.settings.posterior_lr * self.settings.inner_epochs / self.B

    @property
    def probe(self) -> PartiallyLabelled:
        """Given labels to measure networks on: validation rows, or the training rows themselves."""
        return self.training if self.validation is None else self.validation

    @property
    def N_u(self) -> int:  # noqa: N802
        """Unlabelled rows of this process, or one more: as many in all ranks that share them."""
        return -(-len(self.data.unlabelled_rows) // self.ranks.sharing)

    @property
    def steps(self) -> int:
        """Of an epoch over the unlabelled rows."""
        return steps_per_epoch(self.N_u, self.B)

    @property
    def supervised_B(self) -> int:  # noqa: N802
        """|B| where the labelled rows stand in for the unlabelled ones."""
        return min(max(self.B, 3), len(self.training.labelled_rows))  # or a batch may have one row

    def passes(self, epochs: int = 1) -> int:
        """Images that so many epochs of either phase take through the network of this process."""
        return image_passes(self.N_u, self.steps, self.B_l, epochs)

    def supervised_passes(self, epochs: int = 1) -> int:
        """Images that so many epochs of the supervised baseline take through the network."""
        rows = len(self.training.labelled_rows)
        steps = steps_per_epoch(rows, self.supervised_B)
        return image_passes(rows, steps, self.B_l, epochs)


def prepare(
    data: PartiallyLabelled,
    settings: Settings,
    seed: int,
    network: NetworkFactory | None = None,
    place: Place = CPU,
    ranks: Ranks = ALONE,
    reviewed: Tensor | None = None,
) -> Problem:
    """Check everything, set validation rows apart, and fit the preprocessing on the training rows.

    Data without unlabelled rows are good for the supervised baseline alone. `network` is any
    factory; without one it is the network that the settings name. Ranks that share
    the rows must all call it, as they do everything that follows. `reviewed` (N,) are rows that
    were labelled because they were doubtful: they say nothing of how the others fare, nor of how
    frequent their classes are.
    """
    training, validation = split_validation(
        data, settings.validation_share, generator_at(seed, "validation")
    )
    training = _own_share(training, ranks)
    B, K = settings.batch_size, data.n_classes
    B_l = settings.labelled_batch_size or min(B, len(training.labelled_rows))
    alpha = 0.5 / K if settings.min_probability is None else settings.min_probability
    if len(data.unlabelled_rows) == 0:  # only the supervised baseline is possible
        check_labels(training)
        check_batch(B_l, len(training.labelled_rows), "labelled")
    else:
        check_phase_one(
            training,
            None,
            (),
            settings.inner_epochs,
            B,
            B_l,
            alpha,
            settings.stability_patience,
            settings.weights,
            settings.update,
            settings.gradient_at,
        )
    counted_before = ranks.shares_rows and ranks.rank > 0  # the labelled rows, by rank 0
    rows = training.unlabelled_rows if counted_before else training.rows
    preprocessing = fit_preprocessing(training.x, settings.whiten, rows, ranks.total)
    base = settings.augmentation
    followed = {"same": base, "strong": f"strong-{base.removeprefix('strong-')}"}
    wish = settings.classifier_augmentation
    resolved = settings.changed(
        min_probability=alpha,
        labelled_batch_size=B_l,
        classifier_augmentation=followed.get(wish, wish),
    )
    x = place.resident(data.x)
    problem = Problem(
        data,
        replace(training, x=x),
        None if validation is None else replace(validation, x=x),
        resolved,
        seed,
        preprocessing.to(place.device),
        _new_network(data, settings, network, place),
        alpha,
        B,
        B_l,
        torch.zeros(len(data.y), dtype=torch.bool) if reviewed is None else reviewed,
        place,
        ranks,
    )
    _try_smallest_batches(problem)
    return problem


def _own_share(training: PartiallyLabelled, ranks: Ranks) -> PartiallyLabelled:
    """The labelled rows, and those of the unlabelled ones that are this rank's; nothing copied."""
    if not ranks.shares_rows:
        return training
    y = training.y.clone()
    y[training.unlabelled_rows] = SET_ASIDE
    own = ranks.own_rows(training.unlabelled_rows)
    y[own] = training.y[own]
    return training.with_labels(y)


def _new_network(
    data: PartiallyLabelled, settings: Settings, network: NetworkFactory | None, place: Place
) -> NewNetwork:
    factory = network or named_factory(settings.network, settings.width)
    in_shape, K = tuple(data.x.shape[1:]), data.n_classes
    return lambda generator: place.in_precision(
        build(factory, in_shape, K, generator, place.device)
    )


def as_trained(problem: Problem) -> NewNetwork:
    """Networks as they are trained: compiled or data-parallel once, their weights drawn anew."""
    place, ranks, kept = problem.place, problem.ranks, list[nn.Module]()
    if not place.compiled and not ranks.shares_rows:
        return problem.new_network

    def draw(generator: Generator) -> nn.Module:
        fresh = problem.new_network(generator)
        if not kept:
            fresh = ranks.with_common_statistics(fresh)
            kept.append(ranks.wrapped(place.compile(fresh)))
        return redraw_(kept[0], fresh)

    return draw


def _try_smallest_batches(problem: Problem) -> None:
    """What would only fail an hour later fails now: each view, and a step of the network on it."""
    data, settings = problem.training, problem.settings
    N_u, N_l = len(data.unlabelled_rows), len(data.labelled_rows)
    smallest = min(problem.B_l, N_l // steps_per_epoch(N_l, problem.supervised_B))
    if N_u:
        smallest = min(smallest, N_u // problem.steps)
    generator = generator_at(problem.seed, "trial")
    network = problem.new_network(generator).train()
    for name in (settings.augmentation, settings.classifier_augmentation):
        rows = view_of(problem, name)(data.x[data.rows[:smallest]], generator)
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


def view_of(problem: Problem, name: str) -> View:
    """What networks see of the rows under the augmentation of this name."""
    return augmented_view(named_recipe(name), problem.preprocessing, problem.training.x.ndim)
