from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saas_ssl.algorithm.partially_labelled import UNLABELLED, PartiallyLabelled
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.data.splits import hold_out, keep_labels, split_validation
from saas_ssl.sources.digits import read_digits


def rows(y: list[int], K: int = 3) -> PartiallyLabelled:
    n = len(y)
    x = torch.arange(n * 2.0).view(n, 2)
    return PartiallyLabelled(
        x, torch.tensor(y), [str(k) for k in range(K)], list(map(str, range(n)))
    )


GOOD: dict[str, Any] = {
    "x": torch.rand(4, 2),
    "y": torch.tensor([0, 1, -1, -1]),
    "classes": ["cat", "dog"],
    "ids": ["a", "b", "c", "d"],
}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"x": torch.rand(4)}, "x must be images"),
        ({"x": torch.ones(4, 2, dtype=torch.int64)}, "floating-point"),
        (
            {"x": torch.tensor([[0.0, 1.0], [torch.nan, 0.0], [0.0, 0.0], [1.0, 1.0]])},
            r"row 1 \(b\).*NaN",
        ),
        ({"x": torch.full((4, 1, 2, 2), torch.inf)}, "infinite"),
        ({"x": torch.rand(4, 2).numpy()}, "torch tensors"),
        ({"x": torch.ones(4, 1, 2, 2, dtype=torch.int16)}, "images must be uint8"),
        ({"x": torch.full((4, 1, 2, 2), 255.0)}, "between 0 and 1"),
        ({"y": torch.tensor([0, 1, -1])}, "one int64 label for each of the 4 rows"),
        ({"y": torch.tensor([0.0, 1.0, -1.0, -1.0])}, "int64"),
        (
            {"y": torch.tensor([0, 2, -1, -1])},
            r"row 1 \(b\) has label 2, but labels must be 0 to 1",
        ),
        ({"y": torch.tensor([0, 1, -3, -1])}, "has label -3"),
        ({"classes": ["cat"], "y": torch.tensor([0, 0, -1, -1])}, "at least two classes"),
        ({"classes": ["cat", "cat"]}, "same name"),
        ({"ids": ["a"]}, "4 rows but 1 ids"),
    ],
)
def test_bad_data_are_refused(wrong: dict[str, Any], sentence: str) -> None:
    PartiallyLabelled(**GOOD)
    with pytest.raises(ValueError, match=sentence):
        PartiallyLabelled(**{**GOOD, **wrong})


def test_fingerprint_tells_any_change() -> None:
    base = PartiallyLabelled(**GOOD)
    assert base.fingerprint() == PartiallyLabelled(**GOOD).fingerprint()
    for change in (
        {"x": GOOD["x"] + 1e-3},
        {"y": torch.tensor([1, 0, -1, -1])},
        {"classes": ["cat", "cow"]},
        {"ids": ["a", "b", "c", "e"]},
    ):
        assert PartiallyLabelled(**{**GOOD, **change}).fingerprint() != base.fingerprint()


def test_digits() -> None:
    data = read_digits()
    assert data.x.shape == (1797, 1, 16, 16)
    assert data.x.dtype == torch.uint8
    assert data.x.max() > 250
    assert data.classes == [str(k) for k in range(10)]
    assert torch.bincount(data.y).min() > 170
    assert read_digits(image_size=8).x.shape == (1797, 1, 8, 8)


def test_the_demo_s_split() -> None:
    rest, test = hold_out(read_digits(image_size=8), 450, generator_at(0))
    data = keep_labels(rest, 50, generator_at(1))
    assert (len(data.labelled_rows), len(data.unlabelled_rows), len(test.y)) == (50, 1297, 450)
    assert torch.bincount(data.y[data.labelled_rows]).tolist() == [5] * 10
    assert not set(rest.ids) & set(test.ids)
    assert torch.equal(data.y[data.labelled_rows], rest.y[data.labelled_rows])


@given(st.lists(st.integers(0, 2), min_size=10, max_size=60), st.integers(1, 9), st.integers(0, 99))
def test_hold_out_keeps_the_class_shares(y: list[int], n: int, seed: int) -> None:
    data = rows(y)
    rest, held = hold_out(data, n, generator_at(seed))
    assert len(held.y) == n
    assert sorted([*rest.ids, *held.ids]) == sorted(data.ids)
    exact = torch.bincount(data.y, minlength=3) * n / len(y)
    assert ((torch.bincount(held.y, minlength=3) - exact).abs() < 1).all()


@given(st.integers(3, 30), st.integers(0, 99))
def test_kept_labels_are_balanced_and_true(n: int, seed: int) -> None:
    data = rows([k % 3 for k in range(40)])
    kept = keep_labels(data, n, generator_at(seed))
    labelled = kept.labelled_rows
    assert len(labelled) == n
    assert torch.equal(kept.y[labelled], data.y[labelled])
    counts = torch.bincount(kept.y[labelled], minlength=3)
    assert counts.max() - counts.min() <= 1
    assert (kept.y[kept.unlabelled_rows] == UNLABELLED).all()


def test_splits_follow_the_generator() -> None:
    data = rows([k % 3 for k in range(60)])
    one, again, other = (keep_labels(data, 9, generator_at(seed)).y for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_validation_is_stratified_and_needs_20_labels_per_class() -> None:
    y = [0] * 40 + [1] * 20 + [2] * 25 + [-1] * 15
    training, validation = split_validation(rows(y), 0.1, generator_at(0))
    assert validation is not None
    assert torch.bincount(validation.y[validation.labelled_rows]).tolist() == [4, 2, 2]
    assert len(training.unlabelled_rows) == 15
    assert len(validation.unlabelled_rows) == 0
    together = torch.cat([training.rows, validation.rows])
    assert torch.equal(together.sort().values, torch.arange(100))
    assert training.x is validation.x  # shared, not copied
    _, at_least_one = split_validation(rows(y), 0.001, generator_at(0))
    assert at_least_one is not None
    assert torch.bincount(at_least_one.y[at_least_one.rows]).tolist() == [1, 1, 1]
    almost_all, _ = split_validation(rows(y), 0.99, generator_at(0))
    assert torch.bincount(almost_all.y[almost_all.labelled_rows]).tolist() == [1, 1, 1]
    few = rows([0] * 40 + [1] * 19 + [2] * 25)
    assert split_validation(few, 0.1, generator_at(0)) == (few, None)
    assert split_validation(rows(y), 0.0, generator_at(0))[1] is None


def test_impossible_splits() -> None:
    data = rows([0, 0, 1, 1, 2, 2])
    with pytest.raises(ValueError, match="cannot keep 2 labels of 3 classes"):
        keep_labels(data, 2, generator_at(0))
    with pytest.raises(ValueError, match="cannot keep 3 labels of class '0': it has only 2"):
        keep_labels(data, 9, generator_at(0))
    with pytest.raises(ValueError, match="cannot hold out 6 of 6"):
        hold_out(data, 6, generator_at(0))
    with pytest.raises(ValueError, match="fully labelled data, but 1 rows have no label"):
        hold_out(rows([0, 1, 2, -1]), 1, generator_at(0))
