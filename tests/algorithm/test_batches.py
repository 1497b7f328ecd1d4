from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saas_ssl.algorithm.batches import (
    cycle,
    image_passes,
    steps_per_epoch,
    two_streams,
    whole_passes,
)
from saas_ssl.algorithm.randomness import generator_at

sizes = st.tuples(st.integers(1, 60), st.integers(1, 60)).filter(lambda pair: pair[1] <= pair[0])


@given(sizes)
def test_a_pass_visits_every_row_once_in_equal_shares(size: tuple[int, int]) -> None:
    N, B = size
    batches = list(
        islice(whole_passes(N, steps_per_epoch(N, B), generator_at(0)), steps_per_epoch(N, B))
    )
    assert sorted(torch.cat(batches).tolist()) == list(range(N))
    lengths = [len(batch) for batch in batches]
    assert max(lengths) <= B
    assert max(lengths) - min(lengths) <= 1


@given(sizes)
def test_the_cycle_gives_full_batches_and_favours_no_row(size: tuple[int, int]) -> None:
    N, B = size
    drawn = torch.cat(list(islice(cycle(N, B, generator_at(0)), 7)))
    assert len(drawn) == 7 * B
    counts = torch.bincount(drawn, minlength=N)
    assert counts.max() - counts.min() <= 1


def test_passes_differ_and_are_reproducible() -> None:
    def two_passes() -> list[list[int]]:
        return [batch.tolist() for batch in islice(whole_passes(20, 1, generator_at(1)), 2)]

    first, second = two_passes()
    assert first != second
    assert two_passes() == [first, second]


def test_the_labelled_stream_goes_on_across_epochs() -> None:
    steps = list(islice(two_streams(7, 4, 3, 2, generator_at(0)), 6))  # two epochs of three steps
    labelled = torch.cat([j for _, j in steps])
    assert torch.bincount(labelled).tolist() == [3, 3, 3, 3]
    for epoch in (steps[:3], steps[3:]):
        assert sorted(torch.cat([i for i, _ in epoch]).tolist()) == list(range(7))


@pytest.mark.parametrize(("N_u", "B", "B_l"), [(7, 3, 2), (100, 100, 10), (101, 100, 1)])
def test_image_passes_counts_what_the_streams_give(N_u: int, B: int, B_l: int) -> None:
    steps = islice(
        two_streams(N_u, 10, steps_per_epoch(N_u, B), B_l, generator_at(0)),
        2 * steps_per_epoch(N_u, B),
    )
    assert image_passes(N_u, steps_per_epoch(N_u, B), B_l, 2) == sum(
        len(i) + len(j) for i, j in steps
    )
