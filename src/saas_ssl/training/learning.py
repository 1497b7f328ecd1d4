"""Both phases in one call: within a budget, by several processes, with a history of plain dicts."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from torch import Tensor, nn

from saas_ssl.algorithm.descent import Descent
from saas_ssl.algorithm.network import unwrapped
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.phases import Epoch, Outer
from saas_ssl.algorithm.randomness import generator_at, seed_at
from saas_ssl.data.arrays import as_tensor
from saas_ssl.training.budget import ENDLESS, Deadline, within
from saas_ssl.training.devices import find_place
from saas_ssl.training.outputs import error_rate
from saas_ssl.training.pipeline import (
    infer_posterior,
    initial_passes,
    initial_posterior,
    train_classifier,
    train_supervised,
)
from saas_ssl.training.presets import Settings
from saas_ssl.training.problem import Problem, prepare
from saas_ssl.vision.networks import NetworkFactory

Line = dict[str, Any]
Array = NDArray[Any]


@dataclass(frozen=True)
class Learned:
    """What both phases found, on the CPU."""

    network: nn.Module
    P_u: Tensor | None  # none: nothing was inferred, the network knows the labelled rows alone
    n_outer: int
    history: list[Line]
    error: float  # of the network on given labels, as `inner_error` in the history is


@dataclass(frozen=True)
class Helpers:
    """Other processes of this machine, each of which runs a trajectory for every outer iteration.

    They prepare the problem for themselves, from what can be sent to them: the factory of the
    network and the name of the device instead of `problem.new_network` and `problem.place`.
    """

    network: NetworkFactory | None
    device: str
    count: int


def infers(problem: Problem) -> bool:
    """Whether there are labels to infer, and outer iterations to do so."""
    return problem.settings.outer_iterations > 0 and problem.N_u > 0


def learn(
    problem: Problem,
    helpers: Helpers,
    deadline: Deadline | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> Learned:
    """Infer the posterior and train the classifier; without one, on the labelled rows alone."""
    settings, history, started = problem.settings, list[Line](), time.monotonic()
    passes, P_u, n_outer = 0, None, 0

    def note(line: Line) -> None:
        seconds = round(time.monotonic() - started, 3)
        history.append({**line, "image_passes": passes, "seconds": seconds})

    if infers(problem):
        passes, w = (
            initial_passes(problem),
            problem.new_network(generator_at(problem.seed, "probe")),
        )
        for outer in _outers(problem, helpers, deadline):
            P_u, n_outer = outer.P_u.cpu(), outer.m + 1
            passes += problem.passes(settings.inner_epochs) * (1 + helpers.count)
            unwrapped(w).load_state_dict(outer.w)
            line = {"phase": "one", "outer": outer.m, "cumulative_loss": outer.cumulative_loss}
            inner_error = error_rate(w, problem.preprocessing, problem.probe)
            note({**line, "changed": outer.changed, "inner_error": inner_error})
            say(
                f"outer iteration {n_outer}: cumulative loss {outer.cumulative_loss:.3f}, "
                f"{outer.changed:.1%} of the labels changed"
            )
    for epoch in _epochs(problem, P_u, deadline):
        passes += problem.supervised_passes() if P_u is None else problem.passes()
        note({"phase": "two", "epoch": epoch.n, "loss": epoch.loss, "rate": epoch.rate})
    say(f"classifier: loss {epoch.loss:.3f} after {epoch.n + 1} epochs")
    error = error_rate(epoch.w, problem.preprocessing, problem.probe)
    network = unwrapped(epoch.w).eval().requires_grad_(False).cpu()
    return Learned(network, P_u, n_outer, history, error)


def _epochs(problem: Problem, P_u: Tensor | None, deadline: Deadline | None) -> Iterator[Epoch]:
    if P_u is None:
        return train_supervised(problem)
    rate = None if deadline is None else deadline.rate(problem.settings, done=0)
    return train_classifier(problem, P_u, rate=rate)


def _outers(problem: Problem, helpers: Helpers, deadline: Deadline | None) -> Iterator[Outer]:
    """Phase one; dP_u is the mean over the trajectories of this process and of its helpers."""
    P_u, changes = initial_posterior(problem), list[float]()
    M = ENDLESS if deadline is not None and deadline.decides_outer_iterations else None
    if helpers.count == 0:
        yield from within(infer_posterior(problem, P_u, M=M), deadline, problem.settings)
        return
    x, y, classes = problem.data.x.numpy(), problem.data.y.numpy(), list(problem.data.classes)
    own = (problem.settings, problem.seed, helpers.network, helpers.device)
    others: Iterator[Array] = iter(())

    def begin_others(sgd: Descent) -> None:
        nonlocal others
        if sgd.t == 1:  # so there is another outer iteration; this process goes on meanwhile
            before = (P_u.cpu().numpy(), tuple(changes))
            others = parallel(
                delayed(_trajectory)(x, y, classes, *own, *before, rank)
                for rank in range(1, helpers.count + 1)
            )

    def average(dP_u: Tensor) -> Tensor:
        all_ = [dP_u, *(torch.from_numpy(other).to(dP_u) for other in others)]
        return torch.stack(all_).mean(dim=0)

    # Asked for one process, joblib would start none: a second one that idles costs little.
    with Parallel(max(2, helpers.count), backend="loky", return_as="generator") as parallel:
        outers = infer_posterior(problem, P_u, after_step=begin_others, M=M, average=average)
        for outer in within(outers, deadline, problem.settings):
            P_u, changes = outer.P_u, [*changes, outer.changed]
            yield outer


def _trajectory(
    x: Array,
    y: Array,
    classes: Sequence[str],
    settings: Settings,
    seed: int,
    network: NetworkFactory | None,
    device: str,
    P_u: Array,
    changes: Sequence[float],
    rank: int,
) -> Array:
    """dP_u of one outer iteration in another process, with draws of its own."""
    torch.set_num_threads(1)
    ids = [str(row) for row in range(len(x))]
    data = PartiallyLabelled(as_tensor(x), as_tensor(y), classes, ids)
    place = find_place(device, "fp32", compiled=False, local_rank=rank)
    problem = prepare(data, settings, seed, network, place)
    own = replace(problem, seed=seed_at(seed, "rank", rank))
    outer = next(infer_posterior(own, as_tensor(P_u), changes, M=len(changes) + 1))
    dP_u: Array = outer.dP_u.cpu().numpy()
    return dP_u
