"""Both phases and the supervised baseline of a problem, iteration by iteration."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from saas_ssl.algorithm.batches import steps_per_epoch
from saas_ssl.algorithm.descent import Descent
from saas_ssl.algorithm.host import Combine, Host
from saas_ssl.algorithm.network import NewNetwork, unwrapped
from saas_ssl.algorithm.phases import Epoch, Outer, phase_one, phase_two
from saas_ssl.algorithm.posterior import INITIAL_POSTERIORS, SUPERVISED
from saas_ssl.algorithm.randomness import generator_at, seed_at
from saas_ssl.algorithm.schedules import SCHEDULES, Rate, fixed_length, halving
from saas_ssl.algorithm.simplex import project
from saas_ssl.data.fair_shares import with_fair_shares
from saas_ssl.training.outputs import error_rate, predict
from saas_ssl.training.presets import Settings
from saas_ssl.training.problem import Problem, as_trained, view_of
from saas_ssl.training.ranks import ALONE

_GUESSES, _GUESS_EPOCHS, _GUESS_STEPS = 3, 30, 100  # of a supervised initial posterior


AfterStep = Callable[[Descent], None]


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
        view_of(problem, settings.augmentation),
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
        view_of(problem, settings.classifier_augmentation),
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
