"""Parts of a run of an experiment: each keeps checkpoints and goes on where it was interrupted."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from saas_ssl.algorithm.blocks import below
from saas_ssl.algorithm.descent import WEIGHTS
from saas_ssl.algorithm.network import unwrapped
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.phases import Epoch
from saas_ssl.algorithm.posterior import hard_labels
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.algorithm.schedules import least_epochs
from saas_ssl.data.splits import keep_labels
from saas_ssl.experiments.protocol import Protocol
from saas_ssl.progress.display import PARTS
from saas_ssl.runs.checkpoints import Checkpoints
from saas_ssl.training.devices import Place
from saas_ssl.training.outputs import error_rate
from saas_ssl.training.pipeline import (
    infer_posterior,
    initial_posterior,
    supervised_epochs,
    train_classifier,
    train_supervised,
)
from saas_ssl.training.problem import Problem, prepare
from saas_ssl.vision.augment import Preprocessing

_MINUTE = 60.0

Record = dict[str, Any]
"""The numbers of one run, as JSON holds them."""


@dataclass(frozen=True)
class Case:
    """One labelled set of an experiment, ready to run."""

    full: PartiallyLabelled  # with all labels, most of which the runs do not see
    test: PartiallyLabelled
    protocol: Protocol
    seed: int
    place: Place
    folder: Path  # of checkpoints
    tell: Callable[[str], None] = lambda _how_far: None  # people, about once a minute

    def data(self, unlabelled: int | None = None) -> PartiallyLabelled:
        """The rows with the labels that this seed keeps; with these, so many unlabelled ones."""
        protocol, generator = self.protocol, generator_at(self.seed, "kept labels")
        return keep_labels(self.full, protocol.labels, generator, unlabelled or protocol.unlabelled)

    def problem(self, unlabelled: int | None = None, **settings: Any) -> Problem:
        """Data and settings, resolved, but for these settings those of the protocol."""
        return prepare(
            self.data(unlabelled),
            self.protocol.settings.changed(**settings),
            self.seed,
            place=self.place,
        )

    def truth(self, problem: Problem) -> Tensor:
        """The labels that SaaS does not see, for measuring only."""
        return self.full.y[problem.data.unlabelled_rows]

    def error(self, network: nn.Module, preprocessing: Preprocessing) -> float:
        """Of a final network on the test rows."""
        return error_rate(network, preprocessing, self.test)


@dataclass(frozen=True)
class Inferred:
    """What phase one came to."""

    P_u: Tensor
    lines: list[Record]  # one for each outer iteration
    labels: Mapping[int, Tensor]  # hard labels after some of them

    def record(self) -> Record:
        """One list for each quantity, and the error at the end."""
        names = ("accuracy", "cumulative_loss", "changed", "seconds")
        record: Record = {name: [line[name] for line in self.lines] for name in names}
        return {**record, "unlabelled_error": 1.0 - self.lines[-1]["accuracy"]}


def infer(
    case: Case, problem: Problem, P_u: Tensor | None = None, snapshots: Collection[int] = ()
) -> Inferred:
    """Phase one from this posterior, with the accuracy of P_u after each outer iteration."""
    store, truth, told = Checkpoints(case.folder / "one"), case.truth(problem), time.monotonic()
    saved = store.newest()
    if saved is not None:
        lines, P_u = saved.facts["lines"], saved.tensors["P_u"]
        labels = {int(m): kept for m, kept in below("labels.", saved.tensors).items()}
    else:
        lines, labels = list[Record](), dict[int, Tensor]()
        P_u = initial_posterior(problem) if P_u is None else P_u
    start = time.perf_counter()
    for outer in infer_posterior(problem, P_u, [line["changed"] for line in lines]):
        P_u, found = outer.P_u.cpu(), hard_labels(outer.P_u).cpu()
        lines.append(
            {
                "accuracy": (found == truth).double().mean().item(),
                "cumulative_loss": outer.cumulative_loss,
                "changed": outer.changed,
                "seconds": round(time.perf_counter() - start, 3),
            }
        )
        if outer.m + 1 in snapshots:
            labels[outer.m + 1] = found
        kept = {f"labels.{m}": tensor for m, tensor in labels.items()}
        store.save({"lines": lines}, {"P_u": P_u, **kept})
        if time.monotonic() - told > _MINUTE:
            M, told = problem.settings.outer_iterations, time.monotonic()
            case.tell(f"outer {outer.m + 1}/{M}, {1 - lines[-1]['accuracy']:.2%} wrong labels")
        start = time.perf_counter()
    return Inferred(P_u, lines, labels)


def classify(case: Case, problem: Problem, P_u: Tensor) -> nn.Module:
    """Phase two on the hard labels of this posterior."""
    return _trained(
        *(case, problem, "two"),
        lambda scores, inside: train_classifier(problem, P_u, scores, inside=inside),
    )


def supervise(case: Case, problem: Problem) -> nn.Module:
    """The supervised baseline: phase two on the labelled rows alone."""
    return _trained(
        *(case, problem, "supervised"),
        lambda scores, inside: train_supervised(problem, scores, inside=inside),
    )


def _trained(
    case: Case,
    problem: Problem,
    part: str,
    epochs: Callable[[list[float], Mapping[str, Tensor] | None], Iterator[Epoch]],
) -> nn.Module:
    """The network after all epochs, of which some may have been done by an earlier process."""
    store = Checkpoints(case.folder / part)
    saved, state = store.newest(), None
    scores: list[float] = [] if saved is None else saved.facts["scores"]
    network = problem.new_network(generator_at(problem.seed, "place for weights"))
    if saved is not None:
        state = saved.tensors
        unwrapped(network).load_state_dict(below(WEIGHTS, state))
    written = time.monotonic()
    for epoch in epochs(scores, state):
        network = epoch.w
        scores.append(epoch.score)
        if time.monotonic() - written > _MINUTE:
            store.save({"scores": scores}, epoch.sgd.state())
            written = time.monotonic()
            case.tell(f"{PARTS[part]}, epoch {epoch.n + 1}, training loss {epoch.loss:.3f}")
    return network.eval()


def run_saas(case: Case, problem: Problem, P_u: Tensor | None = None) -> Record:
    """Both phases from this posterior: the labels it comes to, and the test error."""
    inferred = infer(case, problem, P_u)
    classifier = classify(case, problem, inferred.P_u)
    return {**inferred.record(), "test_error": case.error(classifier, problem.preprocessing)}


def run_supervised(case: Case, problem: Problem) -> Record:
    """The baseline: its test error."""
    return {"test_error": case.error(supervise(case, problem), problem.preprocessing)}


@dataclass(frozen=True)
class Cost:
    """Image passes of a run; at least so many where halving the rate may take longer."""

    passes: float
    at_least: bool = False

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.passes + other.passes, self.at_least or other.at_least)


def cost_of_phase_one(problem: Problem) -> Cost:
    """T epochs, M times."""
    settings = problem.settings
    return Cost(problem.passes(settings.inner_epochs * settings.outer_iterations))


def cost_of_phase_two(problem: Problem) -> Cost:
    """The classifier."""
    least = _least_epochs(problem)
    return Cost(problem.passes(least or problem.settings.classifier_epochs), least is not None)


def cost_of_supervised(problem: Problem) -> Cost:
    """The baseline."""
    least = _least_epochs(problem)
    return Cost(problem.supervised_passes(least or supervised_epochs(problem)), least is not None)


def _least_epochs(problem: Problem) -> int | None:
    """Of phase two where its score never rises."""
    own = problem.settings
    if own.classifier_schedule != "halving":
        return None
    return least_epochs(own.classifier_lr, own.classifier_patience, own.classifier_final_lr)
