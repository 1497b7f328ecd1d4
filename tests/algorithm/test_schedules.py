import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saas_ssl.algorithm.schedules import (
    constant,
    cosine,
    fixed_length,
    halving,
    least_epochs,
    linear_end,
    ramp_down,
    ramp_up,
    triangular,
)


def test_shapes() -> None:
    assert constant(0.1) == constant(0.9) == 1.0
    assert triangular(0.25) == pytest.approx(1.0)
    assert triangular(0.125) == pytest.approx(0.5)
    assert triangular(0.625) == pytest.approx(0.5)
    assert 0 < triangular(0.999) < 0.01


def test_fixed_length_ends() -> None:
    rate = fixed_length(0.2, 4, constant)
    assert [rate([0.0] * n) for n in range(6)] == [0.2] * 4 + [0.0] * 2


def test_halving_as_in_the_paper() -> None:
    rate = halving(0.1, patience=3, stop=0.02)
    assert rate([]) == 0.1
    assert rate([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == 0.1  # rising: never halved
    assert rate([1.0, 0.0, 1.0]) == 0.1
    assert rate([1.0, 0.0, 1.0, 1.0]) == 0.05  # three epochs without a rise
    assert rate([1.0, 0.0, 1.0, 1.0, 2.0, 1.0, 1.0]) == 0.05  # a rise starts the count again
    assert rate([1.0] + [0.0] * 6) == 0.025
    assert rate([1.0] + [0.0] * 9) == 0.0  # 0.0125 is below the final rate: done


def test_the_papers_own_numbers_end() -> None:
    rate = halving(0.1, patience=50, stop=0.001)
    assert rate([0.0] * 350) > 0
    assert rate([0.0] * 351) == 0.0
    assert least_epochs(0.1, patience=50, stop=0.001) == 351


@given(st.floats(0.001, 1), st.integers(1, 5), st.floats(1.001, 100))
def test_the_least_number_of_epochs_is_that_of_a_score_that_never_rises(
    stop: float, patience: int, ratio: float
) -> None:
    rate = halving(ratio * stop, patience, stop)
    n = least_epochs(ratio * stop, patience, stop)
    assert rate([0.0] * (n - 1)) > 0
    assert rate([0.0] * n) == 0.0


def test_schedules_of_the_other_methods() -> None:
    assert cosine(0.0) == 1.0
    assert cosine(1.0) == pytest.approx(math.cos(7 * math.pi / 16))
    assert [linear_end(t) for t in (0.0, 0.92, 0.96, 1.0)] == pytest.approx([1.0, 1.0, 0.5, 0.0])
    assert ramp_up(0.0, 0.4) == pytest.approx(math.exp(-5))
    assert ramp_up(0.2, 0.4) == pytest.approx(math.exp(-1.25))
    assert ramp_up(0.4, 0.4) == ramp_up(0.9, 0.4) == ramp_up(0.0, 0.0) == 1.0
    assert ramp_down(0.5, 0.4) == 1.0
    assert ramp_down(0.8, 0.4) == pytest.approx(math.exp(-12.5 * 0.25))
    assert ramp_down(1.0, 0.4) == pytest.approx(math.exp(-12.5))
