"""From data and settings to both phases of the algorithm: everything resolved, nothing written."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Generator, Tensor, nn

from saas_ssl.algorithm.batches import image_passes, steps_per_epoch
from saas_ssl.algorithm.checks import check_batch, check_labels, check_phase_one
from saas_ssl.algorithm.descent import Descent
from saas_ssl.algorithm.host import Combine, Host
from saas_ssl.algorithm.losses import log_softmax
from saas_ssl.algorithm.partially_labelled import SET_ASIDE, PartiallyLabelled
from saas_ssl.algorithm.phases import Epoch, Outer, phase_one, phase_two
from saas_ssl.algorithm.posterior import INITIAL_POSTERIORS, SUPERVISED
from saas_ssl.algorithm.randomness import generator_at, global_draws_from, seed_at
from saas_ssl.algorithm.schedules import SCHEDULES, Rate, fixed_length, halving
from saas_ssl.algorithm.simplex import project
from saas_ssl.data.fair_shares import with_fair_shares
from saas_ssl.data.splits import split_validation
from saas_ssl.training.devices import CPU, Place
from saas_ssl.training.presets import Settings
from saas_ssl.training.ranks import ALONE, Ranks
from saas_ssl.vision.augment import (
    Preprocessing,
    View,
    augmented_view,
    fit_preprocessing,
    named_recipe,
)
from saas_ssl.vision.networks import (
    NetworkFactory,
    NewNetwork,
    build,
    named_factory,
    redraw_,
    unwrapped,
)

_ROWS_AT_ONCE = 512
_GUESSES, _GUESS_EPOCHS, _GUESS_STEPS = 3, 30, 100  # of a supervised initial posterior


AfterStep = Callable[[Descent], None]


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


def infer_posterior(
    problem: Problem,
    P_u: Tensor | None = None,
    changes: Sequence[float] = (),
    after_step: AfterStep = Host.after_step,
    inside: Mapping[str, Tensor] | None = None,
    M: int | None = None,
    average: Combine | None = None,
    new_network: NewNetwork | None = None,
) -> Iterator[Outer]:
    """Phase one, from the given posterior or from the initial one that the settings name.

    To continue, give the `changes` so far too, and the state `inside` of an inner loop, if any. M
    is that of the settings unless another one is given. dP_u is averaged over the trajectories of
    all ranks, or by `average` over those that the caller knows of. What draws the networks is
    `as_trained`, of which a caller may keep one so that nothing is compiled twice.
    """
    settings, ranks = problem.settings, problem.ranks
    if P_u is None:
        P_u = initial_posterior(problem)
    return phase_one(
        with_fair_shares(problem.training, problem.reviewed),
        new_network or as_trained(problem),
        _view(problem, settings.augmentation),
        seed=ranks.trajectory_seed(problem.seed),
        T=settings.inner_epochs,
        M=settings.outer_iterations if M is None else M,
        eta_w=settings.weight_lr,
        # |B| is that of all ranks together where they take the same steps.
        eta_P=settings.posterior_lr / ranks.sharing,
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
        P_u=P_u.to(problem.place.posterior_device),
        changes=changes,
        host=_host(problem, after_step, inside, problem.steps, average),
    )


def _host(
    problem: Problem,
    after_step: AfterStep,
    inside: Mapping[str, Tensor] | None,
    steps: int | None,
    average: Combine | None = None,
) -> Host:
    ranks = problem.ranks
    rows = len(problem.training.unlabelled_rows)
    return Host(
        average=average or ranks.average,
        over_rows=partial(ranks.over_rows, rows=rows),
        after_step=after_step,
        steps=steps,
        place=ranks.own_place,
        loss_scaling=problem.place.loss_scaling,
        inside=inside,
    )


def initial_posterior(problem: Problem) -> Tensor:
    """P_u before the first outer iteration, for the rows of this process."""
    if problem.settings.initial_posterior == SUPERVISED:
        return _supervised_posterior(problem)
    draw = INITIAL_POSTERIORS[problem.settings.initial_posterior]
    data, generator = problem.data, generator_at(problem.seed, "posterior")
    P_u = draw(len(data.unlabelled_rows), data.n_classes, problem.alpha, generator)
    return problem.ranks.own_rows(P_u)


def _supervised_posterior(problem: Problem) -> Tensor:
    """P_u = mean of f_w(x_u) over networks that were trained on the labelled rows alone."""
    epochs = _guess_epochs(problem)
    rate = fixed_length(problem.settings.classifier_lr, epochs, SCHEDULES["triangular"])
    data, guesses = problem.training, list[Tensor]()
    for n in range(_GUESSES):
        own = replace(problem, ranks=ALONE, seed=seed_at(problem.seed, "guess", n))
        host = _host(own, Host.after_step, None, None)
        *_, last = _phase_two(own, None, own.supervised_B, rate, (), host)
        guesses.append(predict(last.w, own.preprocessing, data.x, data.unlabelled_rows))
    return project(torch.stack(guesses).mean(dim=0), problem.alpha)


def initial_passes(problem: Problem) -> int:
    """Images that the initial posterior takes through networks, before phase one."""
    if problem.settings.initial_posterior != SUPERVISED:
        return 0
    return _GUESSES * problem.supervised_passes(_guess_epochs(problem))


def _guess_epochs(problem: Problem) -> int:
    steps = steps_per_epoch(len(problem.training.labelled_rows), problem.supervised_B)
    return max(_GUESS_EPOCHS, math.ceil(_GUESS_STEPS / steps))


def train_classifier(
    problem: Problem,
    P_u: Tensor,
    scores: Sequence[float] = (),
    after_step: AfterStep = Host.after_step,
    inside: Mapping[str, Tensor] | None = None,
    rate: Rate | None = None,
) -> Iterator[Epoch]:
    """Phase two, on the hard labels of the posterior and the given ones.

    To continue, give the `scores` so far and the state `inside` of the descent. The learning rate
    is that of the settings, or any other `rate`.
    """
    rate = rate or _rate(problem.settings, problem.settings.classifier_epochs)
    host = _host(problem, after_step, inside, problem.steps)
    return _phase_two(problem, P_u, problem.B, rate, scores, host)


def train_supervised(
    problem: Problem,
    scores: Sequence[float] = (),
    after_step: AfterStep = Host.after_step,
    inside: Mapping[str, Tensor] | None = None,
) -> Iterator[Epoch]:
    """Phase two on the labelled rows alone, with the same settings and as many image passes."""
    rate = _rate(problem.settings, supervised_epochs(problem))
    host = _host(problem, after_step, inside, None)
    return _phase_two(problem, None, problem.supervised_B, rate, scores, host)


def supervised_epochs(problem: Problem) -> int:
    """Epochs over the labelled rows that take as many image passes as phase two does."""
    if problem.N_u == 0:
        return problem.settings.classifier_epochs
    passes = problem.passes(problem.settings.classifier_epochs)
    return max(1, round(passes / problem.supervised_passes()))


def _phase_two(
    problem: Problem, P_u: Tensor | None, B: int, rate: Rate, scores: Sequence[float], host: Host
) -> Iterator[Epoch]:
    settings = problem.settings
    return phase_two(
        problem.training,
        P_u,
        as_trained(problem),
        _view(problem, settings.classifier_augmentation),
        seed=problem.seed,
        rate=rate,
        momentum=settings.momentum,
        weight_decay=settings.classifier_weight_decay,
        B=B,
        B_l=problem.B_l,
        score=partial(_score, problem),
        scores=scores,
        host=host,
    )


def _rate(settings: Settings, epochs: int) -> Rate:
    if settings.classifier_schedule == "halving":
        return halving(
            settings.classifier_lr, settings.classifier_patience, settings.classifier_final_lr
        )
    return fixed_length(settings.classifier_lr, epochs, SCHEDULES[settings.classifier_schedule])


def _score(problem: Problem, network: nn.Module, loss: float) -> float:
    """Validation accuracy, or the training loss where there is no validation set."""
    problem.ranks.average_buffers_(unwrapped(network))
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
    network = unwrapped(network).eval()
    with torch.no_grad():
        return torch.cat(
            [
                log_softmax(network(preprocessing(x[block]))).exp().cpu()
                for block in rows.split(_ROWS_AT_ONCE)
            ]
        )


def last_features(
    network: nn.Module, preprocessing: Preprocessing, x: Tensor, rows: Tensor
) -> Tensor:
    """(n, D): what the last layer of a network of ours sees of some rows."""
    trunk = nn.Sequential(*list(unwrapped(network).children())[:-1]).eval()
    with torch.no_grad():
        blocks = rows.split(_ROWS_AT_ONCE)
        return torch.cat([trunk(preprocessing(x[block])).float().cpu() for block in blocks])


def error_rate(network: nn.Module, preprocessing: Preprocessing, data: PartiallyLabelled) -> float:
    """The share of the labelled rows that the network gets wrong."""
    return wrong_rows(network, preprocessing, data).double().mean().item()


def wrong_rows(network: nn.Module, preprocessing: Preprocessing, data: PartiallyLabelled) -> Tensor:
    """Whether the network gets a labelled row wrong, for each of them in order."""
    rows = data.labelled_rows
    return predict(network, preprocessing, data.x, rows).argmax(dim=1) != data.y[rows]
