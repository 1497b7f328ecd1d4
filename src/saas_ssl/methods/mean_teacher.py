"""Mean Teacher: Tarvainen and Valpola, NIPS 2017."""

import torch
from pydantic import Field
from torch import Generator, nn

from saas_ssl.algorithm.losses import cross_entropy
from saas_ssl.algorithm.network import NewNetwork
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.randomness import global_draws_from
from saas_ssl.algorithm.schedules import ramp_up
from saas_ssl.methods.feed import Feed
from saas_ssl.methods.settings import Training
from saas_ssl.methods.spending import Losses, spend
from saas_ssl.methods.terms import squared_difference, together
from saas_ssl.methods.training import Average, Steps, Trained


class MeanTeacher(Training):
    """The weight of the difference to the teacher, and how slowly the teacher follows."""

    consistency: float = Field(default=100.0, ge=0, description="highest weight of the difference")
    ramp_up: float = Field(default=40 / 150, ge=0, le=1, description="share of the time until then")
    early_decay: float = Field(default=0.99, ge=0, lt=1, description="of the teacher, until then")
    decay: float = Field(default=0.999, ge=0, lt=1, description="of the teacher, later")


def losses(
    student: nn.Module, teacher: nn.Module, feed: Feed, t: float, settings: MeanTeacher
) -> Losses:
    """ℓ(x_l, y_l) + w(t) ‖f(g(x_u); w) - f(g'(x_u); w̄)‖²; the gradient reaches the student only."""
    x_l, P_l = feed.labelled()
    rows = feed.unlabelled()
    log_f, log_student = together(student, x_l, feed.view(rows))
    with torch.no_grad():
        _, log_teacher = together(teacher, x_l, feed.view(rows))
    weight = settings.consistency * ramp_up(t, settings.ramp_up)
    return {
        "labelled": cross_entropy(log_f, P_l),
        "unlabelled": weight * squared_difference(log_student.exp(), log_teacher.exp()),
    }


def mean_teacher(
    data: PartiallyLabelled, new_network: NewNetwork, settings: MeanTeacher, generator: Generator
) -> Trained:
    """A student that answers as the average of its own past weights does: the teacher, in turn."""
    student = new_network(generator).train()
    teacher = Average(student)
    feed, sgd = Feed(data, settings, generator, student), Steps(student, settings)

    def step(t: float) -> Losses:
        terms = losses(student, teacher.network, feed, t, settings)
        sgd.descend(terms["labelled"] + terms["unlabelled"], t)
        teacher.follow(student, settings.early_decay if t < settings.ramp_up else settings.decay)
        return terms

    with global_draws_from(generator):
        history = spend(settings, student, feed.example(), step)
    return Trained(teacher.network.eval(), feed.preprocessing, history)
