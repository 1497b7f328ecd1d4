"""Several processes do what one process would do with all trajectories, or with all rows."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import one_hot

import reference
from parallel_worker import (
    BASE,
    SEED,
    VARIANTS,
    K,
    even_data,
    hidden_layer,
    preprocessing_of,
    problem_of,
    start,
    uneven_data,
)
from saas_ssl.algorithm.batches import two_streams
from saas_ssl.algorithm.posterior import hard_labels
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.algorithm.schedules import fixed_length, triangular
from saas_ssl.algorithm.simplex import project
from saas_ssl.training.pipeline import infer_posterior, initial_posterior
from saas_ssl.training.problem import prepare
from saas_ssl.training.ranks import ALONE, Ranks
from saas_ssl.vision.augment import Preprocessing

SCRIPT = Path(__file__).parents[1] / "parallel_worker.py"
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))

Batch = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Together:
    """What so many processes saw."""

    size: int
    found: list[dict[str, Tensor]]  # by each rank
    words: list[dict[str, Any]]

    def of(self, experiment: str, name: str) -> list[Tensor]:
        """One tensor of an experiment, as each rank has it."""
        return [found[f"{experiment}/{name}"] for found in self.found]

    def whole(self, experiment: str, name: str) -> Tensor:
        """The rows of all ranks in their order: rank r has every size-th from row r."""
        parts = self.of(experiment, name)
        whole = torch.empty((sum(map(len, parts)), *parts[0].shape[1:]), dtype=parts[0].dtype)
        for rank, part in enumerate(parts):
            whole[rank :: self.size] = part
        return whole

    def weights(self, experiment: str, n: int) -> dict[str, Tensor]:
        """The weights at the end of an outer iteration or epoch, in rank 0."""
        before = f"{experiment}/{n}.w."
        return {
            name.removeprefix(before): value
            for name, value in self.found[0].items()
            if name.startswith(before)
        }

    def x(self) -> NDArray[np.float64]:
        """What the networks of the even data saw, row by row."""
        mean, std = (self.found[0][f"even/{name}"] for name in ("mean", "std"))
        seen: NDArray[np.float64] = Preprocessing(mean, std)(even_data().x).double().numpy()
        return seen


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for a process, and leave none of its group behind."""
    try:
        return process.communicate(timeout=600)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def begin(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module", params=[2, 4])
def together(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Together:
    """Real processes that talk through gloo, in both modes."""
    size: int = request.param
    folder = tmp_path_factory.mktemp(f"processes-{size}")
    torchrun = [TORCHRUN, "--standalone", "--nproc-per-node", str(size)]
    process = begin(*torchrun, str(SCRIPT), str(folder))
    _, errors = finish(process)
    assert process.returncode == 0, errors
    return Together(
        size,
        [load_file(folder / f"rank{rank}.safetensors") for rank in range(size)],
        [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(size)],
    )


def seeds(size: int) -> list[int]:
    return [Ranks(rank, size).trajectory_seed(SEED) for rank in range(size)]


def test_every_rank_has_other_draws_and_the_first_those_of_a_process_alone() -> None:
    assert len(set(seeds(64))) == 64
    assert seeds(64)[0] == ALONE.trajectory_seed(SEED) == SEED
    places = [Ranks(rank, 64, parallel="data").own_place for rank in range(64)]
    assert len(set(places)) == 64
    assert places[0] == ALONE.own_place == ()


def test_the_posterior_follows_the_mean_of_all_trajectories(together: Together) -> None:
    data = even_data()
    P_u = project(start(48), 0.1)
    changes: list[float] = []
    for m in range(2):
        trajectories = []
        for seed in seeds(together.size):
            problem = prepare(data, BASE, seed, network=hidden_layer)
            given = start(48) if m == 0 else P_u
            trajectories.append(next(infer_posterior(problem, given, changes)).dP_u)
        assert not torch.allclose(trajectories[0], trajectories[1])
        dP_u = torch.stack(trajectories).mean(dim=0)
        before, P_u = P_u, project(P_u - BASE.posterior_lr * dP_u, 0.1)
        changed = (hard_labels(before) != hard_labels(P_u)).double().mean().item()
        loss = (before * dP_u).sum().item() * BASE.batch_size / BASE.inner_epochs / 48
        for rank in range(together.size):
            found = {
                name: together.of("trajectories", f"{m}.{name}")[rank]
                for name in ("P_u", "dP_u", "numbers")
            }
            torch.testing.assert_close(found["dP_u"], dP_u, rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(found["P_u"], P_u, rtol=1e-9, atol=1e-12)
            assert found["numbers"].tolist() == pytest.approx([loss, changed], rel=1e-9)
        changes.append(changed)
    assert changes[0] > 0


def shares(size: int) -> list[Tensor]:
    """Which of the 48 unlabelled rows each rank has."""
    return [torch.arange(48)[rank::size] for rank in range(size)]


def union(
    shares: Sequence[Tensor], N_l: int, steps: int, epochs: int, place: Sequence[str | int]
) -> list[Batch]:
    """The batches of all ranks, each of which goes through its own share, joined step by step."""
    streams = [
        islice(
            two_streams(
                len(share), N_l, steps, BASE.labelled_batch_size or 0, generator_at(SEED, *where)
            ),
            epochs * steps,
        )
        for rank, share in enumerate(shares)
        if (where := (*place, *Ranks(rank, len(shares), parallel="data").own_place))
    ]
    return [
        (
            torch.cat([share[i] for share, (i, _) in zip(shares, step, strict=True)]).numpy(),
            torch.cat([j for _, j in step]).numpy(),
        )
        for step in zip(*streams, strict=True)
    ]


def assert_weights(found: Mapping[str, Tensor], expected: reference.Weights) -> None:
    for name, theirs in zip(("W1", "b1", "W2", "b2"), expected, strict=True):
        np.testing.assert_allclose(found[name].numpy(), theirs, rtol=1e-8, atol=1e-12)


def fresh_weights(place: Sequence[str | int]) -> reference.Weights:
    """Those that rank 0 draws."""
    network = problem_of(ALONE, even_data()).new_network(generator_at(SEED, *place))
    return [p.detach().numpy().copy() for p in network.parameters()]


@pytest.mark.parametrize("variant", VARIANTS)
def test_shared_rows_equal_one_process_with_all_batches_at_once(
    together: Together, variant: str
) -> None:
    """W ranks with batches of B are one process with batches of W B."""
    settings, W, data = BASE.changed(**VARIANTS[variant]), together.size, even_data()
    u, l, x = data.unlabelled_rows, data.labelled_rows, together.x()  # noqa: E741
    steps = 48 // (W * settings.batch_size)
    P_u = project(start(48), 0.1).numpy()
    for m in range(2):
        expected = reference.outer_iteration(
            x[u],
            P_u,
            x[l],
            one_hot(data.y[l], K).double().numpy(),
            fresh_weights(("weights", 0 if settings.weights == "reset" else m)),
            union(shares(W), len(l), steps, settings.inner_epochs, ("batches", m)),
            T=settings.inner_epochs,
            B=W * settings.batch_size,
            eta_w=settings.weight_lr,
            eta_P=settings.posterior_lr,
            alpha=0.1,
            beta=settings.entropy_weight,
            momentum=settings.momentum,
            joint=settings.update == "joint",
            after=settings.gradient_at == "after",
            triangular=settings.inner_schedule == "triangular",
        )
        changed = (P_u.argmax(axis=1) != expected.P_u.argmax(axis=1)).mean()
        found = together.whole(variant, f"{m}.P_u").numpy()
        np.testing.assert_allclose(found, expected.P_u, rtol=1e-8, atol=1e-12)
        assert_weights(together.weights(variant, m), expected.w)
        for numbers in together.of(variant, f"{m}.numbers"):
            assert numbers.tolist() == pytest.approx([expected.cumulative_loss, changed], rel=1e-8)
        P_u = expected.P_u
    assert changed < 1


@pytest.mark.parametrize("part", ["classifier", "supervised"])
def test_training_on_shared_rows_equals_one_process_with_all_batches_at_once(
    together: Together, part: str
) -> None:
    W, data, x = together.size, even_data(), together.x()
    u, l = data.unlabelled_rows, data.labelled_rows  # noqa: E741
    x_l, y_l = x[l], one_hot(data.y[l], K).double().numpy()
    x_u, y_u = x[u], one_hot(hard_labels(start(48)), K).double().numpy()
    own, steps, epochs = shares(W), 48 // (W * BASE.batch_size), BASE.classifier_epochs
    if part == "supervised":  # all labelled rows stand in for the unlabelled ones, in each rank
        x_u, y_u, own, steps = x_l, y_l, [torch.arange(12)] * W, 2
        epochs = sum(name.startswith(part) and name.endswith("loss") for name in together.found[0])
    batches = union(own, 12, steps, epochs, ["classifier batches"])
    sgd = reference.Sgd(fresh_weights(["classifier weights"]), BASE.momentum)
    rate = fixed_length(BASE.classifier_lr, epochs, triangular)
    for n in range(epochs):
        losses = []
        for i, j in batches[n * steps : (n + 1) * steps]:
            for rows, labels in ((x_u[i], y_u[i]), (x_l[j], y_l[j])):
                logs = np.stack([reference.log_f(sgd.w, row) for row in rows])
                losses.append(-(logs * labels).sum() / len(rows))
                g = reference.gradient(sgd.w, rows, labels, 0.0)
                decay = BASE.classifier_weight_decay
                g = [d + decay * a for d, a in zip(g, sgd.w, strict=True)]
                sgd.step(g, rate([0.0] * n))
        assert_weights(together.weights(part, n), sgd.w)
        for loss in together.of(part, f"{n}.loss"):
            assert loss.item() == pytest.approx(np.mean(losses), rel=1e-6)
    assert epochs > 1


@pytest.mark.parametrize("part", [*VARIANTS, "uneven", "noisy", "classifier", "supervised"])
def test_ranks_that_share_rows_have_the_same_weights(together: Together, part: str) -> None:
    names = [name for name in together.found[0] if name.startswith(f"{part}/") and ".w." in name]
    assert len(names) >= 8
    for name in names:
        for found in together.found[1:]:
            assert torch.equal(found[name], together.found[0][name]), name


def test_ranks_that_share_rows_have_the_same_batch_statistics(together: Together) -> None:
    """Weights, and running means and variances, which each rank has of its own batches at first."""
    part = "batch normalisation/"
    names = [name for name in together.found[0] if name.startswith(part) and ".w." in name]
    assert any("running_var" in name for name in names)
    for name in names:
        for found in together.found[1:]:
            assert torch.equal(found[name], together.found[0][name]), name


def test_each_rank_holds_only_its_rows(together: Together) -> None:
    data, W = uneven_data(), together.size
    problem = problem_of(ALONE, data)
    own = together.of("rows", "own")
    assert sorted(map(len, own)) == sorted(len(range(rank, 49, W)) for rank in range(W))
    assert torch.equal(torch.cat(own).sort().values, data.unlabelled_rows)
    for rank in range(W):
        for name in ("rows/P_u", "uneven/0.P_u", "uneven/1.dP_u"):
            assert together.found[rank][name].shape == (len(own[rank]), K)
    # ... and with their rows they hold the posterior that one process would begin with.
    assert torch.equal(together.whole("rows", "own"), data.unlabelled_rows)
    assert torch.equal(together.whole("rows", "P_u"), initial_posterior(problem))
    guess = initial_posterior(problem_of(ALONE, data, initial_posterior="supervised"))
    torch.testing.assert_close(together.whole("rows", "guess"), guess)


def test_the_first_rank_gets_all_rows_in_order_at_the_end(together: Together) -> None:
    expected = initial_posterior(problem_of(ALONE, uneven_data()))
    assert torch.equal(together.of("rows", "all")[0], expected)
    for rank in range(1, together.size):
        assert torch.equal(*(together.of("rows", name)[rank] for name in ("all", "P_u")))


def test_means_over_uneven_shares_count_every_row_once(together: Together) -> None:
    before = project(start(49), 0.1)
    for m in range(2):
        after, dP_u = (together.whole("uneven", f"{m}.{name}") for name in ("P_u", "dP_u"))
        loss = (before * dP_u).sum().item() * BASE.batch_size / BASE.inner_epochs / 49
        changed = (hard_labels(before) != hard_labels(after)).double().mean().item()
        for numbers in together.of("uneven", f"{m}.numbers"):
            assert numbers.tolist() == pytest.approx([loss, changed], rel=1e-9)
        before = after


def test_ranks_with_uneven_shares_take_as_many_steps_and_epochs(together: Together) -> None:
    """Or some would wait for others that have ended."""
    for epochs in together.of("rows", "epochs"):
        assert torch.equal(epochs, together.of("rows", "epochs")[0])


@pytest.mark.parametrize("whiten", [False, True])
def test_shared_rows_are_preprocessed_as_one_process_would(
    together: Together, whiten: bool
) -> None:
    expected = preprocessing_of(problem_of(ALONE, uneven_data(), whiten=whiten))
    for name, value in expected.items():
        for found in together.of("whitening" if whiten else "preprocessing", name):
            torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-6)


def test_ranks_tell_each_other_what_they_should(together: Together) -> None:
    W = together.size
    squares = sum((rank + 1) ** 2 for rank in range(W))
    for rank, words in enumerate(together.words):
        assert words == {
            "rank": rank,
            "local rank": rank,
            "size": W,
            "text": "naïve, says 0",
            "from first": [1.0, 1.0],
            "least": 11 - W,
            "any of one": True,
            "any of none": False,
            "total": [W * (W + 1) / 2, W],
            "over rows": [pytest.approx(squares / (W * (W + 1) / 2)), 1.0],
        }


def test_a_rank_that_stops_answering_is_not_waited_for_without_end(tmp_path: Path) -> None:
    """Neither in a step that ranks take together nor between steps."""
    command = [sys.executable, str(SCRIPT), "sleep"]
    sleeper = begin(*command, "1", str(tmp_path / "store"))
    try:
        process = begin(*command, "0", str(tmp_path / "store"))
        text, errors = finish(process)
    finally:
        os.killpg(sleeper.pid, signal.SIGKILL)
        finish(sleeper)
    lines = text.splitlines()
    assert len(lines) == 3, errors
    assert lines[0].startswith("in a step: ")
    assert lines[1] == "after 0.0: the other processes did not answer for 0 s"
    assert lines[2] == "after 0.4: the other processes did not answer for 2 s"
