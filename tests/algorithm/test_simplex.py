import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from reference import project_by_bisection
from saas_ssl.algorithm.blocks import in_blocks
from saas_ssl.algorithm.simplex import project

matrices = st.tuples(st.integers(1, 6), st.integers(2, 12)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.floats(-10, 10))
)
shares = st.floats(0.0, 0.99)  # of the largest feasible alpha


@given(matrices, shares)
def test_equals_bisection(P: np.ndarray, share: float) -> None:
    alpha = share / P.shape[1]
    ours = project(torch.from_numpy(P), alpha).numpy()
    np.testing.assert_allclose(ours, project_by_bisection(P, alpha), atol=1e-12)


@given(matrices, shares, st.sampled_from([torch.float32, torch.float64]))
def test_is_feasible_and_idempotent(P: np.ndarray, share: float, dtype: torch.dtype) -> None:
    alpha = share / P.shape[1]
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    once = project(torch.from_numpy(P).to(dtype), alpha)
    assert once.dtype == dtype
    assert (once >= alpha - tolerance).all()
    torch.testing.assert_close(once.sum(1), torch.ones(len(P), dtype=dtype), atol=tolerance, rtol=0)
    torch.testing.assert_close(project(once, alpha), once, atol=tolerance, rtol=0)


@given(matrices, matrices, shares)
def test_is_non_expansive(P: np.ndarray, Q: np.ndarray, share: float) -> None:
    rows, K = min(len(P), len(Q)), min(P.shape[1], Q.shape[1])
    p, q = torch.from_numpy(P[:rows, :K].copy()), torch.from_numpy(Q[:rows, :K].copy())
    moved = (project(p, share / K) - project(q, share / K)).norm(dim=1)
    assert (moved <= (p - q).norm(dim=1) + 1e-12).all()


@settings(max_examples=50)
@given(
    arrays(np.float64, (4, 7), elements=st.floats(-1e30, 1e30)),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_huge_values_stay_exact(P: np.ndarray, dtype: torch.dtype) -> None:
    result = project(torch.from_numpy(P).to(dtype), 0.05)
    torch.testing.assert_close(result.sum(1), torch.ones(4, dtype=dtype), atol=1e-6, rtol=0)
    assert (result >= 0.05 - 1e-6).all()
    # The largest entry of a row never ends below another one.
    top = result.gather(1, torch.from_numpy(P).to(dtype).argmax(1, keepdim=True))
    assert (top >= result - 1e-6).all()


def test_ties_share_equally() -> None:
    result = project(torch.tensor([[3.0, 3.0, 0.0], [1.0, 1.0, 1.0]]), 0.1)
    expected = torch.tensor([[0.45, 0.45, 0.1], [1 / 3, 1 / 3, 1 / 3]])
    torch.testing.assert_close(result, expected)


def test_rows_are_independent_across_blocks() -> None:
    P = torch.randn(1_100_000, 4, generator=torch.Generator().manual_seed(0))
    assert len(list(in_blocks(P))) > 1
    last = project(P[-7:], 0.05)
    assert torch.equal(project(P, 0.05)[-7:], last)


def test_does_not_change_its_argument() -> None:
    P = torch.randn(5, 3)
    before = P.clone()
    project(P, 0.1)
    assert torch.equal(P, before)


def test_no_rows() -> None:
    assert project(torch.empty(0, 4), 0.1).shape == (0, 4)


@pytest.mark.parametrize("alpha", [0.1, 0.5, -0.01, float("nan")])
def test_infeasible_alpha_says_what_is_feasible(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"infeasible for 10 classes.* below 1/10 = 0\.1"):
        project(torch.rand(3, 10), alpha)


@pytest.mark.parametrize(
    "P", [torch.ones(3, 3, dtype=torch.int64), torch.rand(3), torch.rand(3, 0)]
)
def test_anything_but_a_matrix_of_numbers_is_refused(P: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="floating-point matrix"):
        project(P, 0.1)


def test_a_row_with_nan_gives_nan_and_harms_no_other() -> None:
    result = project(torch.tensor([[torch.nan, 0.0], [3.0, 0.0]]), 0.1)
    assert result[0].isnan().all()
    torch.testing.assert_close(result[1], torch.tensor([0.9, 0.1]))


def test_no_gradient_is_followed() -> None:
    assert not project(torch.rand(3, 4, requires_grad=True), 0.1).requires_grad


def test_runs_where_the_tensor_lives() -> None:
    assert project(torch.empty(4, 3, device="meta"), 0.1).device.type == "meta"
