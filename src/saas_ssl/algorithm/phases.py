"""Algorithm 1 of "SaaS: Speed as a Supervisor for Semi-supervised Learning", and nothing else.

The numbers in the right margin are the line numbers of Algorithm 1. Policy (devices, checkpoints,
progress, files) belongs to the caller; docs/paper-map.md lists every deviation from the paper.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from saas_ssl.algorithm.batches import steps_per_epoch, two_streams
from saas_ssl.algorithm.checks import (
    check_batch,
    check_finite,
    check_labels,
    check_numbers,
    check_phase_one,
    check_posterior,
)
from saas_ssl.algorithm.descent import Descent, add_noise_
from saas_ssl.algorithm.host import ALONE, Host
from saas_ssl.algorithm.losses import cross_entropy, entropy, log_softmax
from saas_ssl.algorithm.network import NewNetwork, View, copied_state
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.posterior import gaussian_posterior, hard_labels, is_stable, outer_means
from saas_ssl.algorithm.randomness import generator_at, global_draws_from
from saas_ssl.algorithm.schedules import Rate, Schedule, constant
from saas_ssl.algorithm.simplex import project


@dataclass(frozen=True)
class Outer:
    """What one outer iteration of Phase I did; its tensors are the reader's to keep."""

    m: int  # 0 for the first
    P_u: Tensor  # (N_u, K) the updated posterior, on S_alpha
    dP_u: Tensor  # (N_u, K) the gradient it was updated by, summed over the trajectory
    cumulative_loss: float  # Eq. 2, at the posterior that this trajectory was trained on
    changed: float  # share of rows whose most probable label changed
    w: dict[str, Tensor]  # weights at the end of the trajectory


@dataclass(frozen=True)
class Epoch:
    """What one epoch of Phase II did."""

    n: int  # 0 for the first
    w: nn.Module  # the network itself: it trains on when the next epoch is asked for
    sgd: Descent  # ... and how: its state is what a checkpoint needs
    rate: float  # learning rate
    loss: float  # training loss, mean over both half-steps
    score: float  # what later learning rates depend on; higher is better


def phase_one(
    data: PartiallyLabelled,
    new_network: NewNetwork,
    augment: View,
    *,
    seed: int,
    T: int,
    M: int,
    eta_w: float = 0.01,
    eta_P: float = 1.0,
    alpha: float | None = None,
    beta: float = 1.0,
    momentum: float = 0.9,
    langevin: float = 0.0,
    B: int = 100,
    B_l: int | None = None,
    schedule: Schedule = constant,
    weights: Literal["resample", "reset"] = "resample",
    update: Literal["alternate", "joint"] = "alternate",
    gradient_at: Literal["before", "after"] = "before",
    tolerance: float = 0.0,
    patience: int = 3,
    P_u: Tensor | None = None,
    changes: Sequence[float] = (),
    host: Host = ALONE,
) -> Generator[Outer, None, Tensor]:
    """P_u = argmin L_T(P_u): the posterior under which fresh networks learn fastest (Eq. 4).

    Yields after each outer iteration and returns the final posterior: the initial one if M = 0.
    To continue after outer iteration m, give its `P_u` and the `changes` of iterations 0..m.
    """
    x, K, u, l = data.x, data.n_classes, data.unlabelled_rows, data.labelled_stream  # noqa: E741
    B_l, alpha = min(B, len(l)) if B_l is None else B_l, 0.5 / K if alpha is None else alpha
    check_phase_one(data, P_u, changes, T, B, B_l, alpha, patience, weights, update, gradient_at)
    check_numbers(eta_w=eta_w, eta_P=eta_P, beta=beta, momentum=momentum, langevin=langevin)
    if P_u is None:
        P_u = gaussian_posterior(len(u), K, alpha, generator_at(seed, "posterior"))  #             1
    P_u = P_u if changes else project(P_u, alpha)  # (one to continue from is projected already)   5
    P_l, steps = one_hot(data.y[l], K).to(P_u), host.steps or steps_per_epoch(len(u), B)
    while (m := len(changes)) < M and not is_stable(changes, tolerance, patience):  #              4
        w = new_network(generator_at(seed, "weights", m if weights == "resample" else 0))  #       6
        dP_u, S = torch.zeros_like(P_u), T * steps  #                                              7
        views, noise = host.draws(seed, "views", m), generator_at(seed, "noise", m)
        sgd = Descent(w.train(), momentum, m, dP_u, (views, noise), scaling=host.loss_scaling)
        batches = two_streams(len(u), len(l), steps, B_l, host.draws(seed, "batches", m))
        with global_draws_from(host.draws(seed, "layers", m)):
            sgd.restore(host.inside)
            for t, (i, j) in islice(enumerate(batches), sgd.t, S):  #                              9
                sgd.set_rate(eta := eta_w * schedule((t + 0.5) / S))
                x_u, x_l = augment(x[u[i]], views), augment(x[l[j]], views)
                log_f = log_softmax(w(x_u))
                loss_u = cross_entropy(log_f, P_u[i]) + beta * entropy(log_f)
                if update == "joint":
                    sgd.descend(loss_u + cross_entropy(log_softmax(w(x_l)), P_l[j]))
                else:
                    sgd.descend(loss_u)  #                                                        10
                    sgd.descend(cross_entropy(log_softmax(w(x_l)), P_l[j]))  #                    11
                add_noise_(w, langevin * eta, noise)
                if gradient_at == "after":
                    with torch.no_grad():
                        log_f = log_softmax(w(x_u))
                dP_u[i] -= log_f.detach().to(dP_u) / B  #                                         12
                host.after_step(sgd.counted())
        dP_u = host.average(dP_u)
        P_u, before = project(P_u - eta_P * dP_u, alpha), P_u  #                               15, 5
        loss, changed = host.over_rows(outer_means(before, P_u, dP_u * (B / T))).tolist()
        check_finite(loss, f"outer iteration {m}", "weight_lr (eta_w)")
        changes = [*changes, changed]
        yield Outer(m, P_u, dP_u, loss, changed, copied_state(w))
    return P_u


def phase_two(
    data: PartiallyLabelled,
    P_u: Tensor | None,
    new_network: NewNetwork,
    augment: View,
    *,
    seed: int,
    rate: Rate,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    B: int = 100,
    B_l: int | None = None,
    score: Callable[[nn.Module, float], float] = lambda _w, loss: -loss,
    scores: Sequence[float] = (),
    host: Host = ALONE,
) -> Iterator[Epoch]:
    """w = argmin ℓ(x_u, argmax P_u; w) + ℓ(x_l, y_l; w): an ordinary classifier, epoch by epoch.

    Without a posterior the labelled rows stand in for the unlabelled ones: the supervised baseline.
    To continue after epoch n, give the `scores` of epochs 0..n and the host the state of its `sgd`.
    """
    x, K, l = data.x, data.n_classes, data.labelled_rows  # noqa: E741
    u, y_u = (l, data.y[l]) if P_u is None else (data.unlabelled_rows, hard_labels(P_u))  #       18
    B_l = min(B, len(l)) if B_l is None else B_l
    check_labels(data)
    check_batch(B, len(u), "labelled" if P_u is None else "unlabelled")
    check_batch(B_l, len(l), "labelled")
    if P_u is not None:
        check_posterior(P_u, len(u), K)
    y_u, y_l = one_hot(y_u, K), one_hot(data.y[l], K)
    w = new_network(generator_at(seed, "classifier weights"))  #                                  20
    views, order = (host.draws(seed, f"classifier {what}") for what in ("views", "batches"))
    S, scores = host.steps or steps_per_epoch(len(u), B), list(scores)
    total = next(w.parameters()).new_zeros(())
    sgd = Descent(w, momentum, len(scores), total, (views,), weight_decay, host.loss_scaling)
    batches = islice(two_streams(len(u), len(l), S, B_l, order), len(scores) * S, None)
    while (eta := rate(scores)) > 0:  #                                                           19
        with global_draws_from(host.draws(seed, "classifier layers", n := len(scores))):
            w.train()
            sgd.set_rate(eta)
            sgd.restore(host.inside)
            for i, j in islice(batches, sgd.t, S):
                for x_b, y_b in ((x[u[i]], y_u[i]), (x[l[j]], y_l[j])):
                    log_f = log_softmax(w(augment(x_b, views)))
                    loss = cross_entropy(log_f, y_b.to(log_f))
                    sgd.descend(loss)  #                                                      21, 22
                    sgd.sum += loss.detach()
                host.after_step(sgd.counted())
        mean_loss = host.over_rows(sgd.sum / (2 * S)).item()
        check_finite(mean_loss, f"epoch {n}", "classifier_lr")
        scores.append(score(w.eval(), mean_loss))
        sgd.begin(n + 1)
        yield Epoch(n, w, sgd, eta, mean_loss, scores[-1])
