from collections.abc import Sequence

import torch
from hypothesis import given
from hypothesis import strategies as st

from saas_ssl.report.choosing import evenly_spaced, examples
from saas_ssl.report.reading import Columns


def table_of(p: Sequence[float]) -> Columns:
    no = torch.zeros(len(p), dtype=torch.bool)
    return Columns(no.long(), torch.tensor(p, dtype=torch.float64), no, no, no)


def test_sure_examples_are_spread_over_those_that_are_equal() -> None:
    chosen = examples(table_of([0.6] * 10 + [0.994, 0.992] * 500 + [0.6] * 10), [0])
    assert chosen.sure[0] == [10 + place for place in evenly_spaced(1_000, 8)]
    better = examples(table_of([0.7] * 100 + [0.99] * 3), [0]).sure[0]
    assert better[:3] == [100, 101, 102]
    assert better[3:] == evenly_spaced(100, 5)


def test_the_least_certain_come_first() -> None:
    p = [0.5 + (37 * n % 100) / 250 for n in range(100)]
    unsure = examples(table_of(p), []).unsure
    assert [p[row] for row in unsure] == sorted(p)[: len(unsure)]


@given(st.integers(1, 500), st.integers(1, 500))
def test_evenly_spaced_places_are_different(total: int, n: int) -> None:
    places = evenly_spaced(total, n)
    assert len(set(places)) == len(places) == min(total, n)
    assert places == sorted(places)
    assert 0 <= places[0] <= places[-1] < total
