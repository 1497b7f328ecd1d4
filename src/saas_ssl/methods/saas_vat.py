"""SaaS combined with VAT, as its paper proposes below its table of results."""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Self

import torch
from pydantic import model_validator
from torch import Generator, Tensor, nn
from torch.nn.functional import one_hot
from torch.utils.flop_counter import FlopCounterMode

from saas_ssl.algorithm.batches import two_streams
from saas_ssl.algorithm.descent import Descent, add_noise_
from saas_ssl.algorithm.losses import cross_entropy, entropy, log_softmax
from saas_ssl.algorithm.network import NewNetwork
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.posterior import changed_share, hard_labels
from saas_ssl.algorithm.randomness import generator_at, global_draws_from
from saas_ssl.algorithm.schedules import SCHEDULES
from saas_ssl.algorithm.simplex import project
from saas_ssl.methods.saas import Saas, problem_of
from saas_ssl.methods.settings import Budget
from saas_ssl.methods.spending import Line, Losses, flops_of_pass, spend
from saas_ssl.methods.training import Trained
from saas_ssl.methods.vat import Adversary, smoothness
from saas_ssl.training.budget import with_lengths
from saas_ssl.training.forecast import Forecast
from saas_ssl.training.pipeline import initial_passes, initial_posterior
from saas_ssl.training.problem import Problem
from saas_ssl.vision.augment import augmented_view, named_recipe


class SaasVat(Saas, Adversary):
    """Those of SaaS and of the adversary; of the variants of Algorithm 1 only the paper's."""

    @model_validator(mode="after")
    def _check_variants(self) -> Self:
        plain = ("resample", "alternate", "before", 0.0)
        if (self.weights, self.update, self.gradient_at, self.stability_tolerance) != plain:
            raise ValueError(
                "weights, update, gradient_at and stability_tolerance can be changed for saas only"
            )
        return self


def half_steps(
    sgd: Descent,
    batch: tuple[Tensor, Tensor, Tensor],
    P_u: Tensor,
    beta: float,
    d: Tensor,
    settings: Adversary,
) -> tuple[Losses, Tensor]:
    """Down ℓ(x_u, P_u) + β q(x_u) + LDS(x_u), then down ℓ(x_l, P_l); (losses, log f(x_u))."""
    x_u, x_l, P_l = batch
    log_f = log_softmax(sgd.w(x_u))
    unlabelled = cross_entropy(log_f, P_u) + beta * entropy(log_f)
    lds = settings.smoothness * smoothness(sgd.w, x_u, log_f, d, settings)
    sgd.descend(unlabelled + lds)
    labelled = cross_entropy(log_softmax(sgd.w(x_l)), P_l)
    sgd.descend(labelled)
    return {"unlabelled": unlabelled, "smoothness": lds, "labelled": labelled}, log_f.detach()


def batches(
    problem: Problem, augmentation: str, generator: Generator
) -> Iterator[tuple[Tensor, tuple[Tensor, Tensor, Tensor], Tensor]]:
    """(i, (x_u, x_l, P_l), a random direction d) of step after step."""
    data = problem.training
    view = augmented_view(named_recipe(augmentation), problem.preprocessing, data.x.ndim)
    u, l = data.unlabelled_rows, data.labelled_rows  # noqa: E741
    P_l = one_hot(data.y[l], data.n_classes)
    for i, j in two_streams(len(u), len(l), problem.steps, problem.B_l, generator):
        x_u, x_l = view(data.x[u[i]], generator), view(data.x[l[j]], generator)
        d = torch.randn(x_u.shape, generator=generator).to(x_u)
        yield i, (x_u, x_l, P_l[j].to(x_l)), d


def trajectory(
    problem: Problem, w: nn.Module, P_u: Tensor, settings: SaasVat, generator: Generator, S: int
) -> Tensor:
    """dP_u of an inner loop of S steps, which trains w."""
    own, dP_u = problem.settings, torch.zeros_like(P_u)
    sgd, schedule = Descent(w.train(), own.momentum, 0, dP_u, ()), SCHEDULES[own.inner_schedule]
    steps = islice(batches(problem, own.augmentation, generator), S)
    for t, (i, batch, d) in enumerate(steps):
        sgd.set_rate(eta := own.weight_lr * schedule((t + 0.5) / S))
        _, log_f = half_steps(sgd, batch, P_u[i], own.entropy_weight, d, settings)
        add_noise_(w, own.langevin_temperature * eta, generator)
        dP_u[i] -= log_f.to(dP_u) / problem.B
    return dP_u


def saas_vat(
    data: PartiallyLabelled, new_network: NewNetwork, settings: SaasVat, generator: Generator
) -> Trained:
    """Algorithm 1 with a term more in both phases: outputs hardly change under small changes."""
    problem = problem_of(data, new_network, settings, generator)
    history = list[Line]()
    with global_draws_from(generator):
        one_pass = flops_of_pass(new_network(generator), example(problem))
        start, P_u = time.monotonic(), initial_posterior(problem)
        step_flops, step_seconds = cost_of_step(problem, P_u, settings)
        step_passes = step_flops / one_pass
        cost = problem.steps * (step_seconds if settings.passes is None else step_passes)
        total = settings.passes or (settings.seconds or 0.0) - (time.monotonic() - start)
        spent = float(initial_passes(problem))
        forecast = Forecast(cost, cost, 0.0, 0.0 if settings.passes is None else spent)
        problem = with_lengths(problem, forecast, total, settings.unit)
        own = problem.settings
        S = own.inner_epochs * problem.steps
        for _ in range(own.outer_iterations):
            w = new_network(generator)
            dP_u = trajectory(problem, w, P_u, settings, generator, S)
            P_u, before = project(P_u - own.posterior_lr * dP_u, problem.alpha), P_u
            spent += S * step_passes
            changed = changed_share(before, P_u).item()
            history.append({"phase": 1.0, "changed": changed, "passes": spent})
        left = total - spent
        if settings.passes is None:
            left = (settings.seconds or 0.0) - (time.monotonic() - start)
        w, lines = classify(problem, new_network, P_u, settings, generator, left)
    history += [{**line, "phase": 2.0, "passes": spent + line["passes"]} for line in lines]
    return Trained(w.eval(), problem.preprocessing, history)


def classify(
    problem: Problem,
    new_network: NewNetwork,
    P_u: Tensor,
    settings: SaasVat,
    generator: Generator,
    left: float,
) -> tuple[nn.Module, list[Line]]:
    """Phase two on the hard labels with what is left of the budget."""
    own, w = problem.settings, new_network(generator).train()
    y_u, schedule = one_hot(hard_labels(P_u), P_u.shape[1]), SCHEDULES[own.classifier_schedule]
    sgd = Descent(w, own.momentum, 0, torch.zeros(()), (), own.classifier_weight_decay)
    stream = batches(problem, own.classifier_augmentation, generator)

    def step(t: float) -> Losses:
        i, batch, d = next(stream)
        sgd.set_rate(own.classifier_lr * schedule(t))
        return half_steps(sgd, batch, y_u[i].to(batch[0]), 0.0, d, settings)[0]

    budget = Budget.model_validate({settings.unit: max(left, 1e-9)})
    return w, spend(budget, w, example(problem), step)


def cost_of_step(problem: Problem, P_u: Tensor, settings: SaasVat) -> tuple[float, float]:
    """(Operations, seconds) of a step of phase one, from a few steps of a network for trial."""
    generator = generator_at(problem.seed, "trial")
    w = problem.new_network(generator)
    with FlopCounterMode(display=False) as counter:
        trajectory(problem, w, P_u, settings, generator, 1)
    start = time.monotonic()
    trajectory(problem, w, P_u, settings, generator, 3)
    return counter.get_total_flops(), (time.monotonic() - start) / 3


def example(problem: Problem) -> Tensor:
    """Two rows as a network sees them."""
    return problem.preprocessing(problem.training.x[problem.training.rows[:2]])
