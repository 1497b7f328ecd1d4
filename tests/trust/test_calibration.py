"""From scores to probabilities: the fast code against loops, and against made-up truth."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta
from torch import Tensor

import reference
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.trust.calibration import (
    accuracy_interval,
    calibration_error,
    fit_calibration,
    reliability,
)


def drawn(n: int, K: int, a: float, epsilon: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Mean log-probabilities of n rows, and labels that follow (1 - ε) softmax(a s) + ε/K."""
    generator = generator_at(seed, "scores")
    s = (1.5 * torch.randn(n, K, generator=generator)).log_softmax(dim=1)
    p = (1 - epsilon) * (a * s).softmax(dim=1) + epsilon / K
    return s, torch.multinomial(p, 1, generator=generator).squeeze(1)


@pytest.mark.parametrize("n", [0, 1, 30])
def test_the_fit_and_its_probabilities_are_those_of_the_loops(n: int) -> None:
    s, y = drawn(n, 4, 1.5, 0.05)
    new, _ = drawn(7, 4, 1.5, 0.05, seed=1)
    expected = reference.calibrated(s.tolist(), y.tolist(), new.tolist())
    found = fit_calibration(s, y).probabilities(new)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_chances_of_mistakes_are_those_of_the_loops() -> None:
    s, y = drawn(30, 4, 1.5, 0.1)
    found = fit_calibration(s, y).mistaken(s, y)
    expected = reference.mistaken(s.double().tolist(), y.tolist())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_mistakes_are_as_likely_as_is_said() -> None:
    """Rows of like chance of a mistake are drawn from the uniform part that often."""
    generator, n, epsilon = generator_at(0, "mistakes"), 20_000, 0.1
    s, y = drawn(n, 5, 3.0, 0.0)
    mistake = torch.rand(n, generator=generator) < epsilon
    y = torch.where(mistake, torch.randint(5, (n,), generator=generator), y)
    chance = fit_calibration(s, y).mistaken(s, y)
    assert calibration_error(chance, mistake) < 0.01
    assert chance[mistake].mean() > 5 * chance[~mistake].mean()


@given(st.integers(0, 10_000), st.integers(0, 40), st.integers(2, 6))
def test_probabilities_sum_to_one_and_keep_the_order(seed: int, n: int, K: int) -> None:
    s, y = drawn(n, K, 2.0, 0.0, seed)
    new, _ = drawn(20, K, 2.0, 0.0, seed + 1)
    p = fit_calibration(s, y).probabilities(new)
    torch.testing.assert_close(p.sum(dim=1), torch.ones(20))
    assert (p >= 0).all()
    assert (p.argsort(dim=1) == new.argsort(dim=1)).all()


@pytest.mark.parametrize("a", [0.7, 1.3, 3.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_much_evidence_finds_the_truth(a: float, epsilon: float) -> None:
    s, y = drawn(4000, 5, a, epsilon)
    calibration = fit_calibration(s, y)
    assert calibration.a == pytest.approx(a, rel=0.15)
    new, truth = drawn(20_000, 5, a, epsilon, seed=1)
    best = calibration.probabilities(new).max(dim=1)
    assert calibration_error(best.values, best.indices == truth) < 0.015
    raw = new.exp().max(dim=1)
    if (a, epsilon) != (1.3, 0.1):  # where both cancel
        assert calibration_error(raw.values, raw.indices == truth) > 0.03


def test_without_evidence_the_usual_values_hold() -> None:
    assert fit_calibration(torch.empty(0, 3), torch.empty(0, dtype=torch.int64)).a == pytest.approx(
        1.75, rel=0.01
    )


def test_few_labels_make_cautious_probabilities() -> None:
    """Of labels that are all right, five say less than five hundred."""
    s = torch.tensor([[-0.2, -1.7]])
    few, many = (
        fit_calibration(s.repeat(n, 1), torch.zeros(n, dtype=torch.int64)).probabilities(s)[0, 0]
        for n in (5, 500)
    )
    assert few < many - 0.02


def test_intervals_are_jeffreys() -> None:
    # From tables of the Beta distribution: B(0.025; 8.5, 2.5) and B(0.975; 8.5, 2.5).
    assert accuracy_interval(8, 10) == pytest.approx((0.4972, 0.9560), abs=1e-3)
    assert accuracy_interval(0, 0) == (0.0, 1.0)
    assert accuracy_interval(50, 50)[1] == 1.0
    assert accuracy_interval(0, 50)[0] == 0.0
    assert accuracy_interval(50, 50)[0] == pytest.approx(0.951, abs=1e-3)


@given(st.integers(0, 500), st.integers(0, 500), st.sampled_from([0.25, 1.0]))
def test_intervals_are_those_of_scipy_bit_for_bit(right: int, wrong: int, weight: float) -> None:
    """The functions that scipy.stats calls, without the half second that its import takes."""
    a, b, tail = weight * right, weight * wrong, (1 - 0.95) / 2  # which is not quite 0.025
    low, high = (float(beta.ppf(q, a + 0.5, b + 0.5)) for q in (tail, 1 - tail))
    expected = (low if right else 0.0, high if wrong else 1.0)
    assert accuracy_interval(a, a + b) == expected


def test_intervals_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    for truth in (0.7, 0.95):
        seen = rng.binomial(60, truth, size=2000)
        covered = {k: accuracy_interval(k, 60) for k in set(seen.tolist())}
        share = np.mean([covered[k][0] <= truth <= covered[k][1] for k in seen.tolist()])
        assert 0.91 < share < 0.99


def test_the_calibration_error_of_rows_counted_by_hand() -> None:
    p = torch.tensor([0.99, 0.97, 0.5, 0.51])
    right = torch.tensor([True, False, True, False])
    # Bins of a fifteenth: the first two rows are in the last, the others in the eighth.
    assert calibration_error(p, right) == pytest.approx(0.5 * (0.98 - 0.5) + 0.5 * 0.005, abs=1e-6)
    assert [b.rows for b in reliability(p, right)] == [2, 2]
    assert calibration_error(torch.ones(3), torch.ones(3, dtype=torch.bool)) == 0.0
