"""Statistics over runs equal those of scipy, and say nothing that a few runs cannot show."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import bootstrap, kendalltau, ttest_1samp, ttest_rel

from saas_ssl.experiments.statistics import (
    differences,
    estimate,
    holm,
    paired_p,
    rank_agreement,
)

numbers = st.floats(-1, 1, allow_subnormal=False)


@given(st.lists(numbers, min_size=2, max_size=8))
def test_intervals_hold_the_mean_and_move_with_the_values(values: list[float]) -> None:
    own = estimate(values)
    low, high = own.low, own.high
    assert low is not None
    assert high is not None
    assert low <= own.mean + 1e-12
    assert own.mean <= high + 1e-12
    assert own.runs == len(values)
    assert own.mean == pytest.approx(np.mean(values))
    assert own.std == pytest.approx(np.std(values, ddof=1), abs=1e-12)
    moved = estimate([value + 1 for value in values])
    assert moved.low == pytest.approx(low + 1, abs=1e-9)
    assert moved.high == pytest.approx(high + 1, abs=1e-9)


def test_intervals_are_those_of_scipy() -> None:
    values = [0.3, 0.1, 0.45, 0.2, 0.6, 0.55, 0.4]
    own = estimate(values)
    student = ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert own.student == pytest.approx((student.low, student.high))
    drawn = bootstrap(
        (values,), np.mean, n_resamples=100_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert own.bootstrap == pytest.approx((drawn.low, drawn.high), abs=0.01)


def test_of_few_runs_the_outer_ends_count() -> None:
    own = estimate([1.0, 2.0, 3.0])
    assert own.bootstrap == (1.0, 3.0)  # never beyond the lowest and the highest
    assert own.student is not None
    assert (own.low, own.high) == own.student
    assert own.student[0] == pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-5)


def test_a_single_run_has_no_interval() -> None:
    own = estimate([0.7])
    assert (own.runs, own.mean, own.std, own.low, own.high) == (1, 0.7, None, None, None)


def test_differences_are_those_of_the_seeds_that_both_have() -> None:
    assert differences({0: 0.5, 2: 0.75, 3: 1.0}, {2: 0.25, 0: 0.5, 1: 9.0}) == [0.0, 0.5]


pairs = st.lists(
    st.tuples(st.floats(0, 1, allow_subnormal=False), st.floats(0, 1, allow_subnormal=False)),
    min_size=2,
    max_size=8,
)


@given(pairs)
def test_p_values_are_those_of_a_paired_t_test(errors: list[tuple[float, float]]) -> None:
    a, b = np.array(errors).T
    if np.std(a - b) < 1e-6:
        return
    assert paired_p((a - b).tolist()) == pytest.approx(float(ttest_rel(a, b).pvalue), abs=1e-9)


def test_p_values_at_the_edges() -> None:
    assert paired_p([0.1]) is None
    assert paired_p([0.0, 0.0]) == 1.0
    assert paired_p([0.25, 0.25]) == 0.0


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), max_size=12))
def test_holm_never_lowers_a_p_value_nor_changes_their_order(p: dict[str, float]) -> None:
    corrected = holm(p)
    assert set(corrected) == set(p)
    for name in p:
        assert p[name] <= corrected[name] <= 1.0
        assert corrected[name] <= min(1.0, len(p) * p[name])
        for other in p:
            if p[name] <= p[other]:
                assert corrected[name] <= corrected[other]


def test_holm_by_hand() -> None:
    corrected = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.9})
    assert corrected == pytest.approx({"a": 0.04, "b": 0.09, "c": 0.09, "d": 0.9})


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=7, unique=True))
def test_agreement_with_the_order_is_kendall_s_tau(values: list[float]) -> None:
    expected = float(kendalltau(range(len(values)), values).statistic)
    assert rank_agreement(values) == pytest.approx(expected)
