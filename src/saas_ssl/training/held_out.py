"""Phase one that leaves a fold of the given labels out of each outer iteration.

The rows of the fold are scored as if they were unlabelled, so the given labels become evidence of
how far scores can be trusted, at the cost of one inner loop for each fold: none that was not there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Generator, Tensor

from saas_ssl.algorithm.batches import image_passes
from saas_ssl.algorithm.host import Host
from saas_ssl.algorithm.partially_labelled import UNLABELLED, PartiallyLabelled
from saas_ssl.algorithm.phases import Outer
from saas_ssl.algorithm.posterior import outer_means
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.training.pipeline import AfterStep, infer_posterior
from saas_ssl.training.problem import Problem, as_trained

_AVERAGED, _EARLY = 5, 2  # outer iterations


@dataclass(frozen=True)
class Scored:
    """An outer iteration, and how fast its network learnt each row under each label."""

    outer: Outer  # of the unlabelled rows alone
    s_u: Tensor  # (N_u, K) mean log-probabilities of the unlabelled rows over the inner loop
    held_out: Tensor  # which of the labelled rows were left out: 0 is the first
    s_h: Tensor  # (n, K) their mean log-probabilities
    passes: int  # images that went through the network of this process


@dataclass(frozen=True)
class Evidence:
    """What the outer iterations so far saw of each row."""

    s_u: Tensor  # (N_u, K) mean log-probabilities of the unlabelled rows, over the last iterations
    s_early: Tensor  # (N_u, K) the same over the first two
    s_once: Tensor  # (N_u,) the largest of a row in the second alone: as for rows left out once
    s_l: Tensor  # (N_l, K) those of the labelled rows, when they were last left out
    at: Tensor  # (N_l,) the outer iteration that left them out, -1 for none

    @classmethod
    def none(cls, N_u: int, N_l: int, K: int) -> Self:
        """Nothing has been seen yet."""
        s_u = torch.zeros(N_u, K)
        return cls(s_u, s_u, s_u[:, 0], torch.zeros(N_l, K), torch.full((N_l,), -1))

    def and_of(self, scored: Scored) -> "Evidence":
        """What is known after one more outer iteration."""
        m, s_l, at = scored.outer.m, self.s_l.clone(), self.at.clone()
        s_l[scored.held_out], at[scored.held_out] = scored.s_h.cpu().float(), m
        s_u = scored.s_u.cpu().float()
        n = min(max(1, m), _AVERAGED)  # the very first is forgotten
        late = self.s_u + (s_u - self.s_u) / n
        early = self.s_early + (s_u - self.s_early) / (m + 1) if m < _EARLY else self.s_early
        once = s_u.max(dim=1).values if m < _EARLY else self.s_once
        return Evidence(late, early, once, s_l, at)


def draw_folds(
    data: PartiallyLabelled, folds: int, generator: Generator, reviewed: Tensor
) -> Tensor:
    """The fold of each labelled row, like shares of every class; -1: none.

    The only one of its class has none, nor have `reviewed` (N,) rows, which are no fair sample.
    """
    y = data.y[data.labelled_rows]
    fold = torch.full_like(y, -1)
    drawn = ~reviewed[data.labelled_rows]
    for k in range(data.n_classes):
        own = ((y == k) & drawn).nonzero().squeeze(1)
        if int((y == k).sum()) > 1:
            order = torch.randperm(len(own), generator=generator)
            fold[own[order]] = (torch.arange(len(own)) + k) % folds
    return fold


def first_fold_at(M: int, folds: int) -> int:
    """The outer iteration that leaves out the first fold.

    Networks of the very first one know nothing of P_u and are not like the later ones, so it is
    spared if there are enough others.
    """
    return int(folds < M)


def infer_with_held_out(
    problem: Problem,
    folds: int,
    P_u: Tensor,
    changes: Sequence[float] = (),
    after_step: AfterStep = Host.after_step,
    inside: Mapping[str, Tensor] | None = None,
    M: int | None = None,
) -> Iterator[Scored]:
    """Phase one as `infer_posterior` does it, but for the labels that are left out.

    With no folds no label is. To continue, give what `infer_posterior` wants.
    """
    data, T = problem.training, problem.settings.inner_epochs
    generator = generator_at(problem.seed, "folds")
    fold = draw_folds(data, max(1, folds), generator, problem.reviewed)
    planned = problem.settings.outer_iterations
    M, first = planned if M is None else M, first_fold_at(planned, folds)
    new_network = as_trained(problem)
    while True:
        m, held_out = len(changes), torch.empty(0, dtype=torch.int64)
        if folds and m >= first:
            held_out = (fold == (m - first) % folds).nonzero().squeeze(1)
        part = without(problem, data.labelled_rows[held_out])
        is_held = data.y[part.training.unlabelled_rows] != UNLABELLED
        # Nothing is known of their labels: only certainty is asked of the outputs.
        P = P_u.new_zeros(len(is_held), data.n_classes)
        P[~is_held] = P_u
        outers = infer_posterior(
            part, P, changes, after_step, inside, min(M, m + 1), new_network=new_network
        )
        outer = next(outers, None)
        if outer is None:
            return
        outer, s_h, inside = _of_unlabelled(part, outer, P, ~is_held), outer.dP_u[is_held], None
        P_u, changes = outer.P_u, [*changes, outer.changed]
        to_means = -problem.B / T
        yield Scored(
            outer,
            outer.dP_u * to_means,
            held_out,
            s_h * to_means,
            image_passes(len(is_held), problem.steps, part.B_l, T),
        )


def without(problem: Problem, rows: Tensor) -> Problem:
    """The same with these rows unlabelled."""
    y = problem.training.y.clone()
    y[rows] = UNLABELLED
    training = problem.training.with_labels(y)
    return replace(problem, training=training, B_l=min(problem.B_l, len(training.labelled_rows)))


def _of_unlabelled(part: Problem, outer: Outer, before: Tensor, own: Tensor) -> Outer:
    """The outer iteration without the rows that only were left out."""
    own = own.to(outer.P_u.device)
    before, P_u, dP_u = before.to(outer.P_u)[own], outer.P_u[own], outer.dP_u[own]
    means = outer_means(before, P_u, dP_u * (part.B / part.settings.inner_epochs))
    loss, changed = part.ranks.over_rows(means, rows=len(P_u)).tolist()
    return replace(outer, P_u=P_u, dP_u=dP_u, cumulative_loss=loss, changed=changed)
