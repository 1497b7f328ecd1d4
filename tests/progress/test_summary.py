from pathlib import Path
from typing import Any

import pytest

from records import TRUST
from saas_ssl.progress.summary import inner_loop_too_short, summary


def record(**results: Any) -> dict[str, Any]:
    return {
        "config": {"inner_epochs": 4},
        "scrutiny": {"accept": 0.95, "label_folds": 5},
        "data": {
            "labelled": 90,
            "validation": 10,
            "unlabelled": 12_345,
            "classes": ["a", "b"],
            "skipped": 0,
        },
        "results": {
            "supervised": {"validation_error": 0.30, "test_error": None},
            "saas": {"validation_error": 0.20, "test_error": None, "unlabelled_error": None},
            "inner": {"error": 0.1, "supervised_error": 0.1, "rows": 100},
            "validation": {"rows": 200, "mended": 24, "broken": 4},
            "accepted": 12_000,
            "review": 345,
            "outliers": 0,
            "trust": TRUST,
            **results,
        },
    }


def told(**results: Any) -> str:
    return "\n".join(summary(record(**results), Path("runs/x")))


def test_counts_and_the_next_command() -> None:
    text = told()
    assert "12,345 rows were labelled from 100 given labels of 2 classes." in text
    assert "345 are marked for review" in text
    assert "could not be used" not in text
    assert "saas predict runs/x NEW --out new.csv" in text


def test_expected_accuracy_and_what_to_review() -> None:
    text = told()
    assert "About 96.0% (91.0% to 98.5%, a 95 % interval) of the labels are right" in text
    assert "judged by 100 given labels left out in turn." in text
    assert (
        "12,000 labels are accepted (probability at least 0.95), of which about 99.1% "
        "(97.0% to 100.0%, a 95 % interval) are right; 345 are marked for review." in text
    )
    for word in ("outlier", "may be wrong", "shares", "widened"):
        assert word not in text


def test_what_looks_wrong_is_told() -> None:
    shift = {"class": "b", "given": 0.5, "inferred": 0.09, "distance": 0.41}
    trust = {**TRUST, "suspects": 3, "shift": shift, "few_labels": True}
    text = told(trust=trust, outliers=1)
    assert "3 given labels may be wrong: marked review, with the reason. Wrong ones make" in text
    assert "1 row may be none of the classes: marked outlier." in text
    assert "'b' is 9% of the inferred and 50% of the given" in text
    assert "fewer than 3 given labels: these intervals were widened" in text


def test_without_labels_left_out_nothing_is_promised() -> None:
    none = {"estimate": 0.9, "low": 0.0, "high": 1.0}
    text = told(trust={**TRUST, "left_out": 0, "all": none, "accepted": none})
    assert "cannot be said: no given label was left out" in text
    assert "interval" not in text
    assert "12,000 labels are accepted (probability at least 0.95); 345 are marked" in text


def test_nothing_accepted() -> None:
    text = told(trust={**TRUST, "accepted": None}, accepted=0)
    assert "0 labels are accepted (probability at least 0.95); 345 are marked" in text


@pytest.mark.parametrize(
    ("mended", "broken", "saas_error", "verdict"),
    [
        (
            24,
            4,
            0.20,
            "The unlabelled rows helped: on 200 validation rows the error went from 30.0%",
        ),
        (4, 24, 0.40, "The unlabelled rows did harm"),
        (7, 5, 0.29, "No clear effect of the unlabelled rows"),
        (0, 0, 0.30, "No clear effect of the unlabelled rows"),
    ],
)
def test_whether_it_helped_is_judged_against_the_noise(
    mended: int, broken: int, saas_error: float, verdict: str
) -> None:
    saas = {"validation_error": saas_error, "test_error": None, "unlabelled_error": None}
    text = told(validation={"rows": 200, "mended": mended, "broken": broken}, saas=saas)
    assert verdict in text


def test_without_validation_it_says_so() -> None:
    assert "cannot be said: no labels were set apart to measure it" in told(validation=None)


def test_known_errors_are_told() -> None:
    saas = {"validation_error": None, "test_error": 0.0123, "unlabelled_error": 0.0456}
    text = told(saas=saas, supervised={"test_error": 0.08}, validation=None)
    assert "Error on the unlabelled rows: 4.56%." in text
    assert "Test error: 1.23%; supervised baseline 8.00%." in text


@pytest.mark.parametrize(
    ("error", "supervised", "rows", "short"),
    [
        (0.45, 0.31, 400, True),
        (0.35, 0.31, 400, False),  # within five points
        (0.45, 0.31, 40, False),  # within the noise of so few rows
        (0.10, 0.00, 100, True),
        (None, 0.31, 400, False),  # no outer iteration at all
    ],
)
def test_a_short_inner_loop_is_noticed(
    error: float | None, supervised: float, rows: int, short: bool
) -> None:
    inner = {"error": error, "supervised_error": supervised, "rows": rows}
    sentence = inner_loop_too_short(inner, 4)
    assert (sentence is not None) == short
    if short:
        assert "--inner-epochs 8 or more" in str(sentence)
        assert str(sentence) in told(inner=inner)
