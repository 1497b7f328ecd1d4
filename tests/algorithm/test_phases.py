"""The fast code equals tests/reference.py; every option does what it says."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

import reference
from saas_ssl.algorithm.batches import steps_per_epoch, two_streams
from saas_ssl.algorithm.descent import add_noise_
from saas_ssl.algorithm.network import redraw_
from saas_ssl.algorithm.phases import Outer, phase_one, phase_two
from saas_ssl.algorithm.posterior import gaussian_posterior, hard_labels
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.algorithm.schedules import constant, fixed_length, halving, triangular
from toy import blobs, identity_view, last, small_network

BASE: dict[str, Any] = {
    "T": 3,
    "M": 2,
    "seed": 7,
    "eta_w": 0.1,
    "eta_P": 0.5,
    "alpha": 0.1,
    "beta": 0.7,
    "momentum": 0.9,
    "B": 10,
    "B_l": 5,
}


def start(data_rows: int, K: int = 3) -> Tensor:
    return gaussian_posterior(data_rows, K, 0.1, generator_at(3, "start")).double()


def run(**changed: Any) -> list[Outer]:
    data, _ = blobs(n=52)
    options = {**BASE, "P_u": start(len(data.unlabelled_rows)), **changed}
    return list(phase_one(data, small_network, identity_view, **options))


@pytest.mark.parametrize("T", [1, 3])
@pytest.mark.parametrize("B", [10, 40])  # 40: one step is a whole epoch
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("gradient_at", ["before", "after"])
@pytest.mark.parametrize("update", ["alternate", "joint"])
def test_phase_one_equals_the_reference(
    update: str, gradient_at: str, momentum: float, B: int, T: int
) -> None:
    shape = triangular if T == 3 else constant
    chosen = {"update": update, "gradient_at": gradient_at, "momentum": momentum, "T": T, "B": B}
    data, _ = blobs(n=52)
    u, l = data.unlabelled_rows, data.labelled_rows  # noqa: E741
    P_u = start(len(u)).numpy()
    for outer in run(**chosen, schedule=shape):
        w = small_network(generator_at(7, "weights", outer.m))
        batches = two_streams(
            len(u), len(l), steps_per_epoch(len(u), B), 5, generator_at(7, "batches", outer.m)
        )
        steps = T * steps_per_epoch(len(u), B)
        expected = reference.outer_iteration(
            data.x[u].numpy(),
            P_u,
            data.x[l].numpy(),
            one_hot(data.y[l], 3).double().numpy(),
            [p.detach().numpy().copy() for p in w.parameters()],
            [(i.numpy(), j.numpy()) for i, j in islice(batches, steps)],
            **{name: BASE[name] for name in ("eta_w", "eta_P", "alpha", "beta")},
            momentum=momentum,
            T=T,
            B=B,
            joint=update == "joint",
            after=gradient_at == "after",
            triangular=shape is triangular,
        )
        np.testing.assert_allclose(outer.dP_u.numpy(), expected.dP_u, rtol=1e-9)
        np.testing.assert_allclose(outer.P_u.numpy(), expected.P_u, rtol=1e-9)
        assert outer.cumulative_loss == pytest.approx(expected.cumulative_loss, rel=1e-9)
        for ours, theirs in zip(outer.w.values(), expected.w, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-8, atol=1e-12)
        P_u = expected.P_u
    assert outer.m == 1


def test_phase_two_equals_the_reference() -> None:
    data, _ = blobs(n=52)
    u, l = data.unlabelled_rows, data.labelled_rows  # noqa: E741
    P_u = start(len(u))
    w = small_network(generator_at(7, "classifier weights"))
    sgd = reference.Sgd([p.detach().numpy().copy() for p in w.parameters()], 0.9)
    batches = two_streams(len(u), len(l), 4, 5, generator_at(7, "classifier batches"))
    rate = fixed_length(0.2, 3, triangular)
    epochs = phase_two(
        data, P_u, small_network, identity_view, seed=7, rate=rate, weight_decay=0.01, B=10, B_l=5
    )
    for n, epoch in enumerate(epochs):
        reference.classifier_epoch(
            sgd,
            data.x[u].numpy(),
            one_hot(hard_labels(P_u), 3).double().numpy(),
            data.x[l].numpy(),
            one_hot(data.y[l], 3).double().numpy(),
            [(i.numpy(), j.numpy()) for i, j in islice(batches, 4)],
            rate([0.0] * n),
            0.01,
        )
        for ours, theirs in zip(epoch.w.parameters(), sgd.w, strict=True):
            np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-8, atol=1e-12)
    assert epoch.n == 2


def test_zero_outer_iterations_return_the_initial_posterior() -> None:
    data, _ = blobs(n=52)
    phase = phase_one(data, small_network, identity_view, **{**BASE, "M": 0}, P_u=start(40))
    with pytest.raises(StopIteration) as end:
        next(phase)
    torch.testing.assert_close(end.value.value, start(40), atol=1e-6, rtol=0)


def test_the_posterior_that_is_returned_is_the_last_one() -> None:
    data, _ = blobs(n=52)
    phase = phase_one(data, small_network, identity_view, **BASE)
    seen = [next(phase) for _ in range(BASE["M"])]
    with pytest.raises(StopIteration) as end:
        next(phase)
    assert torch.equal(end.value.value, seen[-1].P_u)


def test_an_update_of_nothing_returns_the_initial_posterior() -> None:
    """With a vanishing step the posterior after an iteration is the initial one, projected."""
    outer = run(M=1, eta_P=0.0)[0]
    torch.testing.assert_close(outer.P_u, start(40), atol=1e-6, rtol=0)
    assert outer.changed == 0.0


def test_given_labels_never_move() -> None:
    data, _ = blobs(n=52)
    before = data.y.clone()
    for outer in phase_one(data, small_network, identity_view, **BASE):
        assert outer.P_u.shape == (40, 3)  # unlabelled rows only
        assert torch.equal(data.y, before)


def test_posterior_stays_on_the_simplex() -> None:
    for outer in run(M=3, eta_P=50.0):
        assert (outer.P_u >= 0.1 - 1e-12).all()
        torch.testing.assert_close(outer.P_u.sum(1), torch.ones(40).double())


def test_same_seed_same_bits_whatever_the_global_state() -> None:
    def network_with_dropout(generator: torch.Generator) -> nn.Module:
        return nn.Sequential(small_network(generator), nn.Dropout(0.3))

    data, _ = blobs(n=52)
    results = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        state = torch.get_rng_state()
        outers = list(phase_one(data, network_with_dropout, identity_view, langevin=0.01, **BASE))
        assert torch.equal(torch.get_rng_state(), state)  # and it is left alone
        results.append(outers)
    for a, b in zip(*results, strict=True):
        assert torch.equal(a.P_u, b.P_u)
        assert all(torch.equal(a.w[name], b.w[name]) for name in a.w)
    assert not torch.equal(results[0][-1].P_u, run(seed=8)[-1].P_u)


def test_continuing_equals_never_having_stopped() -> None:
    whole = run(M=4)
    first = run(M=2)
    rest = run(M=4, P_u=first[-1].P_u, changes=[outer.changed for outer in first])
    assert [outer.m for outer in rest] == [2, 3]
    assert torch.equal(rest[-1].P_u, whole[-1].P_u)


@pytest.mark.parametrize(
    "option",
    [
        {"seed": 8},
        {"T": 2},
        {"eta_w": 0.05},
        {"eta_P": 4.0},
        {"alpha": 0.05},
        {"beta": 0.0},
        {"momentum": 0.5},
        {"langevin": 1e-3},
        {"B": 8},
        {"B_l": 4},
        {"schedule": triangular},
        {"weights": "reset"},
        {"update": "joint"},
        {"gradient_at": "after"},
        {"P_u": torch.full((40, 3), 1 / 3).double()},
    ],
    ids=lambda option: next(iter(option)),
)
def test_every_option_changes_something(option: dict[str, Any]) -> None:
    assert not torch.allclose(run(**option)[-1].P_u, run()[-1].P_u, atol=1e-7)


def test_reset_starts_from_the_same_weights_and_resample_does_not() -> None:
    drawn: list[Tensor] = []

    def spy(generator: torch.Generator) -> nn.Module:
        network = small_network(generator)
        drawn.append(next(network.parameters()).detach().clone())
        return network

    data, _ = blobs(n=52)
    list(phase_one(data, spy, identity_view, weights="reset", **BASE))
    assert torch.equal(drawn[0], drawn[1])
    drawn.clear()
    list(phase_one(data, spy, identity_view, weights="resample", **BASE))
    assert not torch.equal(drawn[0], drawn[1])


def test_stops_when_stable() -> None:
    outers = run(M=50, eta_P=1e-9, tolerance=0.01, patience=4)
    assert len(outers) == 4  # nothing ever changes: stable as soon as patience allows
    assert len(run(M=5, eta_P=1e-9, tolerance=0.0, patience=4)) == 5


def test_every_row_weighs_the_same_in_the_posterior() -> None:
    """41 rows by 10 make batches of two sizes; a uniform network gives all rows the same dP_u."""

    class Uniform(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(3, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return (0.0 * self.w).expand(len(x), 3)

    data, _ = blobs(n=53)
    outer = next(phase_one(data, lambda _: Uniform(), identity_view, **BASE))
    expected = torch.full((41, 3), 3 * np.log(3) / 10)
    torch.testing.assert_close(outer.dP_u, expected)


def test_unlabelled_data_send_a_gradient_and_change_the_weights() -> None:
    fresh = small_network(generator_at(7, "weights", 0)).state_dict()
    learned, blind = run(M=1)[0], run(M=1, P_u=torch.full((40, 3), 1 / 3).double())[0]
    assert all(not torch.equal(fresh[name], learned.w[name]) for name in fresh)
    assert all(not torch.equal(blind.w[name], learned.w[name]) for name in fresh)


def test_infers_the_labels_of_separable_blobs() -> None:
    data, y = blobs(n=300, spread=0.25)
    truth = y[data.unlabelled_rows]
    options = {**BASE, "M": 6, "T": 5, "eta_P": 5.0}
    accuracies = [
        (hard_labels(outer.P_u) == truth).double().mean().item()
        for outer in phase_one(data, small_network, identity_view, **options)
    ]
    assert accuracies[-1] > 0.98
    assert accuracies[-1] > accuracies[0] - 0.01


def test_correct_labels_learn_faster_than_corrupted_ones() -> None:
    """The premise of the paper: the cumulative loss grows with the share of wrong labels."""
    data, y = blobs(n=300)
    truth = y[data.unlabelled_rows]
    losses = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        wrong = torch.rand(len(truth), generator=generator_at(0, "wrong")) < share
        labels = torch.where(wrong, (truth + 1) % 3, truth)
        P_u = one_hot(labels, 3).double()
        outer = next(
            phase_one(data, small_network, identity_view, **{**BASE, "T": 4, "alpha": 0.0}, P_u=P_u)
        )
        losses.append(outer.cumulative_loss)
    # Wholly wrong labels of one fixed rotation are learnable again, apart from the labelled rows.
    assert losses[0] < losses[1] < losses[2]
    assert losses[0] < losses[4]


def test_outer_owns_its_tensors_even_if_one_network_is_redrawn_in_place() -> None:
    data, _ = blobs(n=52)
    kept = small_network(generator_at(0))

    def redrawn(generator: torch.Generator) -> nn.Module:
        return redraw_(kept, small_network(generator))

    phase = phase_one(data, redrawn, identity_view, **BASE)
    first = next(phase)
    P_u, w = first.P_u.clone(), {name: tensor.clone() for name, tensor in first.w.items()}
    next(phase)
    assert torch.equal(first.P_u, P_u)
    assert all(torch.equal(first.w[name], w[name]) for name in w)


@pytest.mark.parametrize(
    "P_u", [torch.ones(10, 3), torch.ones(60, 3), torch.ones(40, 2), torch.full((40, 3), torch.nan)]
)
def test_phase_two_checks_its_posterior(P_u: Tensor) -> None:
    data, _ = blobs(n=52)
    rate = fixed_length(0.1, 1, constant)
    with pytest.raises(ValueError, match="the posterior"):
        next(phase_two(data, P_u, small_network, identity_view, seed=0, rate=rate, B=10))


def test_langevin_noise_has_the_variance_of_the_paper() -> None:
    """N(0, 1e-5 η_w), on every weight."""
    network = nn.Linear(300, 300)
    before = [w.detach().clone() for w in network.parameters()]
    add_noise_(network, 1e-5 * 0.01, generator_at(0))
    drawn = torch.cat(
        [(w - b).flatten() for w, b in zip(network.parameters(), before, strict=True)]
    )
    assert drawn.var().item() == pytest.approx(1e-7, rel=0.02)
    assert drawn.mean().abs().item() < 1e-5


def test_langevin_noise_follows_the_schedule() -> None:
    """Where the rate is zero there is no noise either."""

    def nothing(_time: float) -> float:
        return 0.0

    fresh = small_network(generator_at(7, "weights", 0)).state_dict()
    w = run(M=1, langevin=1.0, schedule=nothing)[0].w
    assert all(torch.equal(w[name], fresh[name]) for name in fresh)


def test_supervised_baseline_ignores_the_unlabelled_rows() -> None:
    data, _ = blobs(n=52)
    moved = data.x.clone()
    moved[data.unlabelled_rows] += 100.0
    results = []
    for x in (data.x, moved):
        rows = type(data)(x, data.y, data.classes, data.ids)
        rate = fixed_length(0.1, 5, constant)
        epochs = phase_two(rows, None, small_network, identity_view, seed=0, rate=rate, B=6)
        results.append(last(epochs).w.state_dict())
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_phase_two_follows_the_score() -> None:
    data, _ = blobs(n=52)
    epochs = list(
        phase_two(
            data,
            start(40),
            small_network,
            identity_view,
            seed=0,
            B=10,
            rate=halving(0.1, patience=2, stop=0.02),
            score=lambda _w, _loss: 0.5,  # the first epoch rises, no later one does
        )
    )
    assert [epoch.rate for epoch in epochs] == [0.1, 0.1, 0.1, 0.05, 0.05, 0.025, 0.025]


@pytest.mark.parametrize("phase", ["one", "two"])
def test_divergence_is_one_sentence(phase: str) -> None:
    def exploding(generator: torch.Generator) -> nn.Module:
        network = small_network(generator)
        for parameter in network.parameters():
            parameter.data *= 1e200
        return network

    def huge_view(x: Tensor, _generator: torch.Generator) -> Tensor:
        return 1e200 * x

    data, _ = blobs(n=52)
    rate = fixed_length(0.1, 3, constant)
    work: Iterable[object] = (
        phase_one(data, exploding, huge_view, **BASE)
        if phase == "one"
        else phase_two(data, start(40), exploding, huge_view, seed=0, rate=rate, B=10)
    )
    with pytest.raises(ValueError, match=r"training diverged .*lower"):
        list(work)


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"alpha": 0.4}, "infeasible for 3 classes"),
        ({"B": 41}, "batch of 41 unlabelled rows .* there are 40"),
        ({"B": 0}, "batch of 0 unlabelled rows"),
        ({"B_l": 13}, "batch of 13 labelled rows .* there are 12"),
        ({"T": 0}, "inner_epochs"),
        ({"weights": "rset"}, "weights must be resample or reset"),
        ({"update": "both"}, "update must be alternate or joint"),
        ({"gradient_at": "during"}, "gradient_at must be before or after"),
        ({"eta_P": float("inf")}, "eta_P must be a number of at least 0"),
        ({"eta_w": float("nan")}, "eta_w must be a number of at least 0"),
        ({"momentum": -0.5}, "momentum must be a number of at least 0"),
        ({"langevin": -1.0}, "langevin must be a number of at least 0"),
        ({"patience": 0}, "patience must be at least 1, not 0"),
        ({"P_u": None, "changes": [0.1]}, "to continue a run, give the posterior"),
        ({"P_u": torch.ones(3, 3)}, r"40 unlabelled rows .*\(3, 3\)"),
        ({"P_u": torch.full((40, 3), torch.nan)}, "NaN"),
    ],
)
def test_bad_options_are_refused(option: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        run(**option)
