"""SaaS, Speed as a Supervisor: Cicek, Fawzi and Soatto, ECCV 2018; all of it is in `algorithm/`."""

import time
from dataclasses import replace

import torch
from torch import Generator

from saas_ssl.algorithm.checks import check_unlabelled
from saas_ssl.algorithm.network import NewNetwork
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.schedules import SCHEDULES, Rate, fixed_length
from saas_ssl.methods.settings import Budget
from saas_ssl.methods.spending import Line
from saas_ssl.methods.training import Trained
from saas_ssl.training.budget import Deadline, with_lengths
from saas_ssl.training.devices import Place
from saas_ssl.training.forecast import Forecast, measure
from saas_ssl.training.pipeline import infer_posterior, initial_passes, train_classifier
from saas_ssl.training.presets import Settings
from saas_ssl.training.problem import Problem, prepare
from saas_ssl.training.ranks import ALONE

DECIDED_ELSEWHERE = frozenset(
    {"network", "width", "validation_share", "classifier_patience", "classifier_final_lr"}
)
"""Settings of `saas label` that mean nothing here: the network and the budget are given, and all
labels are for training."""


class Saas(Settings, Budget):
    """All settings of `saas label`; T, M and the epochs of phase two are fitted to the budget."""


def saas(
    data: PartiallyLabelled, new_network: NewNetwork, settings: Saas, generator: Generator
) -> Trained:
    """Algorithm 1: the posterior under which networks learn fastest, then a classifier on it."""
    start = time.monotonic()
    problem = problem_of(data, new_network, settings, generator)

    def left() -> float:
        return (settings.seconds or 0.0) - (time.monotonic() - start)

    passes, spent = float(problem.passes()), float(initial_passes(problem))
    # In image passes, if those are the budget.
    forecast = Forecast(passes, passes, finish=0.0, start=spent)
    if settings.seconds is not None:
        forecast = replace(Forecast.of(problem, measure(problem), 0), finish=0.0)
    problem = with_lengths(problem, forecast, settings.passes or left(), settings.unit)
    history: list[Line] = []
    for outer in infer_posterior(problem):
        spent += problem.passes(problem.settings.inner_epochs)
        line = {"phase": 1.0, "cumulative_loss": outer.cumulative_loss, "changed": outer.changed}
        history.append({**line, "passes": spent})
    rate: Rate
    if settings.passes is None:
        rate = Deadline(left, forecast, problem.settings, (), ALONE).rate(problem.settings, done=0)
    else:  # all that phase one has left
        own, epochs = problem.settings, max(1, round((settings.passes - spent) / passes))
        rate = fixed_length(own.classifier_lr, epochs, SCHEDULES[own.classifier_schedule])
    for epoch in train_classifier(problem, outer.P_u, rate=rate):
        spent += problem.passes()
        history.append({"phase": 2.0, "loss": epoch.loss, "passes": spent})
    return Trained(epoch.w.eval(), problem.preprocessing, history)


def problem_of(
    data: PartiallyLabelled, new_network: NewNetwork, settings: Saas, generator: Generator
) -> Problem:
    """Everything resolved, where the network is; all labels are for training, as in all methods."""
    check_unlabelled(data)
    seed = int(torch.randint(1 << 62, (), generator=generator))
    place = Place(next(new_network(generator).parameters()).device)
    own = {name: getattr(settings, name) for name in Settings.model_fields}
    own["validation_share"] = 0.0
    if settings.classifier_schedule == "halving":  # has no set length
        own["classifier_schedule"] = "triangular"
    return prepare(data, Settings(**own), seed, lambda _shape, _K, g: new_network(g), place)
