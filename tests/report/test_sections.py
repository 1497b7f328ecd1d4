from pathlib import Path

from report_pages import Made, dot, inferred_row, page_of, some_rows
from saas_ssl.report import write_report
from saas_ssl.report.choosing import MOST_CLASSES

SECTIONS = [
    *("summary", "speed", "convergence", "reliability", "classes", "confusion"),
    *("sure", "unsure", "suspects", "skipped", "made"),
]


def test_every_section_is_there_in_order(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    assert [name for name in page.values("id") if name in SECTIONS] == SECTIONS
    links = [link for link in page.values("href") if link.startswith("#")]
    assert links == [f"#{name}" for name in SECTIONS[1:]]


def test_numbers_are_those_of_the_record(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    for words in (
        "37 rows were labelled from 4 given labels of 3 classes.",
        "96.1% 91.3% to 98.6%, a 95 % interval",
        "accepted 30 with a probability of 0.95 or more; about 99.1% of them right",
        "to check 8 5 uncertain, 1 given but suspected, 2 of perhaps no class",
        "1 file could not be used: see skipped.csv.",
        "learnt 20% faster at the end than in the first outer iteration: their loss went from "
        "2.500 to 2.000.",
        "the last one changed 5.0% of the labels, and 92.0% of all were right after it.",
        "Of 40 given labels that were left out, 95.0% were right; the probabilities said 93.4%.",
        "Of 37 inferred labels, whose truth is known, 90.0% were right; the probabilities said "
        "93.0%.",
        "“\u2068owl\u2069” is the largest class with 15 inferred labels (40.5%)",
        "saas label photos --out runs/photos",
        *("inner_epochs 4", "network small_conv", "width not set", "whiten no", "seed 4711"),
        *("accept 0.95", "label_folds 5", "in_shape 3 × 24 × 32", "torch 2.13.0", "cores 2"),
        "row 100.png given as cat but without this label it looks like owl (93%)",
        "broken.jpg the file is empty",
        "saas review RUN",
    ):
        assert words in page.text
    assert "saas predict" not in page.text


def test_charts_have_the_numbers_of_the_metrics(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    assert "outer iteration cumulative loss 1 2.500 2 2.250 3 2.000" in page.text
    assert "labels changed labels right 1 80.0% 90.0% 2 20.0% 91.0% 3 5.0% 92.0%" in page.text
    assert "left out 4 61.0% 50.0% given labels that were left out 36 97.0% 100.0%" in page.text
    assert "inferred labels, whose truth is known 37 93.0% 90.0%" in page.text
    assert "cat 2 50.0% 12 32.4% dog 1 25.0% 10 27.0% owl 1 25.0% 15 40.5%" in page.text


def test_two_classes(tmp_path: Path) -> None:
    page = page_of(tmp_path, Made(classes=("no", "yes")))
    assert "of 2 classes." in page.text


def test_no_label_was_left_out(tmp_path: Path) -> None:
    none = {"estimate": 0.9, "low": 0.0, "high": 1.0}
    trust = {"left_out": 0, "reliability": [], "all": none, "accepted": none, "suspects": 0}
    rows = [row for row in some_rows(["a", "b"]) if row.id != "row 100.png"]
    page = page_of(tmp_path, Made(("a", "b"), rows, known=False, trust=trust))
    assert "expected to be right unknown no given label was left out" in page.text
    assert "No given label was left out, so nothing was measured" in page.text
    assert "No given label was left out, so none could be checked." in page.text
    assert "reliability-title" not in page.values("id")
    assert "90.0%" not in page.text
    measured = page_of(tmp_path, Made(("a", "b"), rows, trust=trust))
    assert "reliability-title" in measured.values("id")


def test_truth_that_is_not_known_is_not_shown(tmp_path: Path) -> None:
    page = page_of(tmp_path, Made(known=False))
    assert "labels right" not in page.text
    assert "whose truth is known" not in page.text


def test_no_outer_iterations(tmp_path: Path) -> None:
    page = page_of(tmp_path, Made(outers=0))
    assert page.text.count("There was no outer iteration, so there is nothing to show.") == 2
    (tmp_path / "metrics.jsonl").unlink()
    write_report(tmp_path, Made()._record(some_rows(Made.classes)), dot)


def test_one_outer_iteration(tmp_path: Path) -> None:
    page = page_of(tmp_path, Made(outers=1))
    assert "one outer iteration only" in page.text
    assert "80.0% of the labels, and 90.0% of all were right after it: many are still moving." in (
        page.text
    )


def test_features_have_tables(tmp_path: Path) -> None:
    page = page_of(tmp_path, thumbnail=None)
    assert "img" not in {tag for tag, _ in page.elements}
    assert "row 300.png owl 50.0% cat 50.0%" in page.text
    assert "owl row probability next best probability row 202.png 99.0% cat 1.0%" in page.text
    assert "row 100.png cat 2.0% owl 93.0% given as cat but" in page.text


def test_nothing_is_accepted(tmp_path: Path) -> None:
    rows = [inferred_row(f"r{n}", "a", 0.6, "b") for n in range(9)]
    page = page_of(tmp_path, Made(("a", "b"), rows, trust={"accepted": None}))
    assert "accepted 0 with a probability of 0.95 or more to check 9" in page.text
    assert "“\u2068b\u2069” got none at all." in page.text
    assert "b 0 inferred No row got this label." in page.text


def test_nothing_is_to_review(tmp_path: Path) -> None:
    rows = [inferred_row(f"r{n}", "ab"[n % 2], 0.99, "b") for n in range(9)]
    page = page_of(tmp_path, Made(("a", "b"), rows, skipped=()), command=None)
    assert "None of them is marked for review: all are above the line of 0.95." in page.text
    assert "No given label looks wrong." in page.text
    assert "Everything that was found could be used." in page.text
    assert "started from Python" in page.text
    assert "none of the classes" not in page.text


def test_all_classes_are_shown_in_their_order_if_they_are_few(tmp_path: Path) -> None:
    classes = [str(k) for k in range(MOST_CLASSES)]
    rows = [inferred_row(f"r{n}", classes[n % 7], 0.9, "0") for n in range(50)]
    page = page_of(tmp_path, Made(classes, rows))
    places = [page.text.index(f"{k} {8 if k == '0' else 7} inferred") for k in classes[:7]]
    assert places == sorted(places)
    assert "13 classes got none at all." in page.text
