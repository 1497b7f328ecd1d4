"""What each process of tests/test_parallel.py does; torchrun starts as many as it is told to."""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

import saas_ssl.training.ranks
from saas_ssl.algorithm.descent import Descent
from saas_ssl.algorithm.network import copied_state
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.phases import Outer
from saas_ssl.algorithm.posterior import gaussian_posterior
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.runs.files import save_tensors
from saas_ssl.training.pipeline import (
    infer_posterior,
    initial_posterior,
    supervised_epochs,
    train_classifier,
    train_supervised,
)
from saas_ssl.training.presets import Settings
from saas_ssl.training.problem import Problem, prepare
from saas_ssl.training.ranks import LostWorkerError, Parallel, Ranks, ranks_of_torchrun
from toy import HiddenLayer, blobs

SEED = 7
K = 3
BASE = Settings(
    inner_epochs=3,
    outer_iterations=2,
    weight_lr=0.1,
    posterior_lr=6.0,
    min_probability=0.1,
    entropy_weight=0.7,
    langevin_temperature=0.0,
    batch_size=6,
    labelled_batch_size=5,
    classifier_schedule="triangular",
    classifier_epochs=2,
    classifier_lr=0.2,
    classifier_weight_decay=0.01,
)
VARIANTS: dict[str, dict[str, Any]] = {
    "alternate": {},
    "joint, gradient after": {"update": "joint", "gradient_at": "after"},
    "triangular": {"inner_schedule": "triangular", "weights": "reset"},
}


class InDoublePrecision(HiddenLayer):
    """The network of tests/reference.py; rows come to networks in single precision."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.double())


def hidden_layer(in_shape: tuple[int, ...], n_classes: int, generator: Generator) -> nn.Module:
    return InDoublePrecision(in_shape[0], 8, n_classes, generator)


def even_data() -> PartiallyLabelled:
    """48 unlabelled rows: equal shares for 2 and for 4 processes."""
    return blobs(n=60)[0]


def uneven_data() -> PartiallyLabelled:
    """49 unlabelled rows: one process has one more than the others."""
    return blobs(n=61)[0]


def start(N_u: int) -> Tensor:
    return gaussian_posterior(N_u, K, 0.1, generator_at(3, "start")).double()


def problem_of(ranks: Ranks, data: PartiallyLabelled, **changes: Any) -> Problem:
    return prepare(data, BASE.changed(**changes), SEED, network=hidden_layer, ranks=ranks)


def as_tensors(outer: Outer) -> dict[str, Tensor]:
    numbers = torch.tensor([outer.cumulative_loss, outer.changed], dtype=torch.float64)
    weights = {f"w.{name}": value for name, value in outer.w.items()}
    return {"P_u": outer.P_u, "dP_u": outer.dP_u, "numbers": numbers, **weights}


def labels_together(problem: Problem) -> dict[str, Tensor]:
    """Phase one from the same posterior in all processes."""
    P_u = problem.ranks.own_rows(start(len(problem.data.unlabelled_rows)))
    return {
        f"{outer.m}.{name}": value
        for outer in infer_posterior(problem, P_u)
        for name, value in as_tensors(outer).items()
    }


def trained(problem: Problem, supervised: bool) -> dict[str, Tensor]:
    """Phase two, or the supervised baseline."""
    P_u = problem.ranks.own_rows(start(len(problem.data.unlabelled_rows)))
    found = {}
    for epoch in train_supervised(problem) if supervised else train_classifier(problem, P_u):
        found[f"{epoch.n}.loss"] = torch.tensor(epoch.loss, dtype=torch.float64)
        for name, value in copied_state(epoch.w).items():
            found[f"{epoch.n}.w.{name}"] = value
    return found


def preprocessing_of(problem: Problem) -> dict[str, Tensor]:
    """The preprocessing."""
    found = problem.preprocessing
    if found.zca is None:
        return {"mean": found.mean, "std": found.std}
    return {"mean": found.zca.mean, "whiten": found.zca.whiten, "colour": found.zca.colour}


def experiments(mode: Parallel) -> dict[str, dict[str, Tensor]]:
    """Everything that the tests look at, by the name of the experiment."""
    ranks = ranks_of_torchrun(mode)
    if ranks is None:
        raise ValueError("to be started by torchrun")
    if mode == "trajectories":
        return {"trajectories": labels_together(problem_of(ranks, even_data()))}
    even, uneven = problem_of(ranks, even_data()), problem_of(ranks, uneven_data())
    found = {
        name: labels_together(problem_of(ranks, even_data(), **changes))
        for name, changes in VARIANTS.items()
    }
    found["uneven"] = labels_together(uneven)
    found["noisy"] = labels_together(problem_of(ranks, even_data(), langevin_temperature=0.1))
    found["classifier"] = trained(even, supervised=False)
    found["supervised"] = trained(even, supervised=True)
    normalised = prepare(even.data, BASE.changed(network="mlp", width=8), SEED, ranks=ranks)
    found["batch normalisation"] = trained(normalised, supervised=False)
    found["preprocessing"] = preprocessing_of(uneven)
    found["whitening"] = preprocessing_of(problem_of(ranks, uneven_data(), whiten=True))
    own = initial_posterior(uneven)
    guessing = problem_of(ranks, uneven_data(), initial_posterior="supervised")
    found["rows"] = {
        "own": uneven.training.unlabelled_rows,
        "P_u": own,
        "guess": initial_posterior(guessing),
        "all": ranks.all_rows(own, len(uneven.data.unlabelled_rows)),
        "epochs": torch.tensor([supervised_epochs(uneven), uneven.steps]),
    }
    found["even"] = preprocessing_of(even)
    return found


def words(ranks: Ranks) -> dict[str, Any]:
    """The small things that ranks tell each other."""

    def number() -> Tensor:
        return torch.tensor([ranks.rank + 1.0, 1.0])

    return {
        "rank": ranks.rank,
        "local rank": ranks.local_rank,
        "size": ranks.size,
        "text": ranks.text_from_first(f"naïve, says {ranks.rank}" + "!" * ranks.rank),
        "from first": ranks.from_first(number()).tolist(),
        "least": ranks.least(10 - ranks.rank),
        "any of one": ranks.any(ranks.rank == ranks.size - 1),
        "any of none": ranks.any(False),
        "total": ranks.total(number()).tolist(),
        "over rows": ranks.over_rows(number(), rows=ranks.rank + 1).tolist(),
    }


def main(folder: Path) -> None:
    """Do all experiments in both modes, and write down what this process sees of them."""
    found = experiments("trajectories") | experiments("data")
    ranks = ranks_of_torchrun("data")
    if ranks is not None:
        told = words(ranks)
        tensors = {f"{name}/{key}": t for name, part in found.items() for key, t in part.items()}
        save_tensors(folder / f"rank{ranks.rank}.safetensors", tensors)
        (folder / f"rank{ranks.rank}.json").write_text(json.dumps(told))
        ranks.leave()


def wait_for_one_that_sleeps(rank: int, store: Path) -> None:
    """Rank 1 takes a step and then no more; rank 0 must not wait for ever, wherever it waits."""
    saas_ssl.training.ranks._STUCK = timedelta(seconds=3)
    ranks = Ranks(rank, 2, rank, "data", store)

    def after_step(_sgd: Descent) -> None:
        while rank == 1:
            time.sleep(1)

    problem = problem_of(ranks, even_data())
    try:
        list(infer_posterior(problem, start(24), after_step=after_step))
    except RuntimeError as error:
        print(f"in a step: {error}", flush=True)
    saas_ssl.training.ranks._LEAST_PATIENCE = 0.2
    for own in (0.0, 0.4):
        ranks.last = time.monotonic() - own  # seconds that this process took itself
        try:
            ranks.meet()
        except LostWorkerError as error:
            print(f"after {own}: {error}", flush=True)
    os._exit(0)  # threads of torch.distributed still wait


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "sleep":
        wait_for_one_that_sleeps(int(sys.argv[2]), Path(sys.argv[3]))
    main(Path(sys.argv[1]))
