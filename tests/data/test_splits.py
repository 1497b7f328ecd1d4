import pytest

from saas_ssl.algorithm.partially_labelled import SET_ASIDE, PartiallyLabelled
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.data.splits import hold_out, keep_labels, split_validation
from saas_ssl.sources.digits import read_digits
from samples import refusal


def rows_of(data: PartiallyLabelled, y: int) -> int:
    return int((data.y == y).sum())


def test_only_so_many_unlabelled_rows_are_used() -> None:
    digits = read_digits(8)
    kept = keep_labels(digits, 50, generator_at(0, "keep"), unlabelled=300)
    assert (len(kept.labelled_rows), len(kept.unlabelled_rows)) == (50, 300)
    assert rows_of(kept, SET_ASIDE) == len(digits.y) - 350
    assert kept.y[kept.labelled_rows].bincount().tolist() == [5] * 10
    used = digits.y[kept.unlabelled_rows].bincount(minlength=10)
    share = (digits.y.bincount() - 5) * 300 / (len(digits.y) - 50)
    assert (used - share).abs().max() <= 1
    assert (kept.y[kept.labelled_rows] == digits.y[kept.labelled_rows]).all()


def test_the_same_labels_are_kept_whatever_is_set_aside() -> None:
    digits = read_digits(8)
    few = keep_labels(digits, 50, generator_at(0, "keep"), unlabelled=300)
    all_ = keep_labels(digits, 50, generator_at(0, "keep"))
    assert few.labelled_rows.tolist() == all_.labelled_rows.tolist()
    other = keep_labels(digits, 50, generator_at(1, "keep"))
    assert other.labelled_rows.tolist() != all_.labelled_rows.tolist()


def test_all_other_rows_may_be_asked_for_but_no_more() -> None:
    digits = read_digits(8)
    kept = keep_labels(digits, 50, generator_at(0, "keep"), unlabelled=1747)
    assert rows_of(kept, SET_ASIDE) == 0
    for wrong in (0, -1, 1748):
        message = refusal(
            lambda wrong=wrong: keep_labels(  # type: ignore[misc]
                digits, 50, generator_at(0, "keep"), unlabelled=wrong
            )
        )
        assert f"cannot use {wrong} unlabelled rows: there are 1747 besides the 50" in message


def test_rows_set_aside_have_no_label_to_hide() -> None:
    digits = read_digits(8)
    training, validation = split_validation(digits, 0.2, generator_at(0, "validation"))
    assert validation is not None
    aside = training.y == SET_ASIDE
    assert (aside == (validation.y >= 0)).all()
    for split in (keep_labels, hold_out):
        with pytest.raises(ValueError, match="fully labelled data, but 359 rows have no label"):
            split(training, 20, generator_at(0, "keep"))
