"""The closed loop: label, check, export, label again; and what a review says of probabilities."""

import csv
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from command import QUICK, Here, saas
from photos import write_photos
from review_runs import CLASSES, feature_run, image_run, rows_of, write_images, write_run
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.review.corrected import export_corrected
from saas_ssl.review.log import ReviewLog
from saas_ssl.training.held_out import draw_folds, infer_with_held_out
from saas_ssl.training.pipeline import initial_posterior
from saas_ssl.training.problem import prepare
from samples import refusal
from small_problems import FEATURES, features


def decide(run: Path, labels: dict[int, str | None], n: int = 40) -> None:
    with ReviewLog(run, [str(row) for row in range(n)], CLASSES) as log:
        log.decide(labels, {})


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_export_has_what_was_given_and_what_was_checked(tmp_path: Path) -> None:
    data = write_images(tmp_path / "x.npz", 40)
    run = write_run(tmp_path / "run", rows_of(40), data, reviewed=[8])
    decide(run, {0: "dog", 2: "cat", 3: None, 4: None, 5: "<b>owl</b>"})
    told = export_corrected(run, tmp_path / "corrected.csv")
    assert told == f"11 labels in {tmp_path / 'corrected.csv'}: 5 rows checked, 2 labels corrected"
    rows = {row["path"]: row for row in table(tmp_path / "corrected.csv")}
    given = [row for row in range(40) if row % 4 == 0 and row != 4]  # of 4 nobody can tell
    assert sorted(map(int, rows)) == sorted([*given, 2, 5])
    assert rows["0"] == {"path": "0", "label": "dog", "source": "given"}  # still a fair sample
    assert rows["2"] == {"path": "2", "label": "cat", "source": "reviewed"}
    assert rows["8"]["source"] == "reviewed"  # by the review of an earlier run
    assert rows["12"] == {"path": "12", "label": "cat", "source": "given"}


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    run, out = image_run(tmp_path), tmp_path / "corrected.csv"
    decide(run, {2: "cat"})
    out.write_text("mine")
    assert "exists: choose another --export" in refusal(lambda: export_corrected(run, out))
    assert out.read_text() == "mine"
    export_corrected(run, out, overwrite=True)
    assert len(table(out)) == 11
    for name in ("labels.csv", "review.jsonl"):
        before = (run / name).read_bytes()
        target = run / name if name.endswith(".csv") else run / "review.csv"
        if name.endswith(".csv"):
            words = refusal(lambda target=target: export_corrected(run, target, overwrite=True))  # type: ignore[misc]
            assert "is a file of the run itself" in words
        assert (run / name).read_bytes() == before
    assert "must end in .csv" in refusal(lambda: export_corrected(run, tmp_path / "c.txt"))


def test_a_run_with_decisions_is_never_replaced(tmp_path: Path, saas_here: Here) -> None:
    write_photos(tmp_path / "photos", n=60, labelled=10)
    image_run(tmp_path)
    decide(tmp_path / "run", {2: "cat"})
    done = saas_here("label", "photos", "--out", "run", "--overwrite", *QUICK, cwd=tmp_path)
    assert done.code == 1
    assert "run holds the decisions of a review" in done.errors
    assert (tmp_path / "run/review.jsonl").is_file()


def test_features_are_known_by_their_ids(tmp_path: Path) -> None:
    run = feature_run(tmp_path)
    decide(run, {39: "cat"})
    export_corrected(run, tmp_path / "c.csv")
    assert table(tmp_path / "c.csv")[-1] == {"id": "39", "label": "cat", "source": "reviewed"}


def test_label_check_and_label_again(tmp_path: Path, saas_here: Here) -> None:
    """All from the command line, on photos; the second export remembers the first review."""
    truth = write_photos(tmp_path / "photos", n=120, labelled=8)
    done = saas("label", "photos", "--out", "run", *QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/report.html").stat().st_size > 10_000
    rows = table(tmp_path / "run/labels.csv")
    order = load_file(tmp_path / "run/posterior.safetensors")["review_order"].tolist()
    assert sorted(order) == list(range(120))
    first = [row for row in order if rows[row]["source"] == "inferred"][:10]
    with ReviewLog(tmp_path / "run", [row["id"] for row in rows], ["blue", "green", "red"]) as log:
        log.decide({row: truth[rows[row]["id"]] for row in first}, {})
    done = saas("review", "run", "--export", "corrected.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "34 labels in corrected.csv: 10 rows checked" in done.stdout
    again = ("label", "photos", "--labels", "corrected.csv", "--out", "run2", *QUICK)
    repeated = saas_here(*again, cwd=tmp_path)
    assert repeated.code == 0, repeated.errors
    record = json.loads((tmp_path / "run2/run.json").read_text())
    assert record["data"]["labelled"] == 34
    assert record["command"].startswith("saas label photos --labels corrected.csv --out run2")
    assert record["results"]["trust"]["left_out"] <= 24  # reviewed rows are no evidence
    second = table(tmp_path / "run2/labels.csv")
    assert [second[row]["source"] for row in first] == ["given"] * 10
    assert [second[row]["label"] for row in first] == [truth[rows[row]["id"]] for row in first]
    saas_here("review", "run2", "--export", "corrected2.csv", cwd=tmp_path)
    reviewed = [
        row["path"] for row in table(tmp_path / "corrected2.csv") if row["source"] == "reviewed"
    ]
    assert sorted(reviewed) == sorted(rows[row]["id"] for row in first)


def test_reviewed_rows_are_never_left_out() -> None:
    data = features(labelled_per_class=6)
    reviewed = torch.zeros(len(data.y), dtype=torch.bool)
    reviewed[data.labelled_rows[::2]] = True
    reviewed[data.unlabelled_rows[0]] = True  # decides nothing
    fold = draw_folds(data, 3, generator_at(0), reviewed)
    assert (fold[::2] == -1).all()
    assert (fold[1::2] >= 0).all()
    problem = prepare(data, FEATURES.changed(outer_iterations=4), seed=0, reviewed=reviewed)
    scored = list(infer_with_held_out(problem, 3, initial_posterior(problem)))
    left_out = torch.cat([one.held_out for one in scored]).unique()
    assert left_out.tolist() == list(range(1, len(fold), 2))


def test_classes_of_reviewed_rows_shift_nothing() -> None:
    """Those that a review chose say nothing of how frequent classes are."""
    data = features(labelled_per_class=6)
    reviewed = torch.zeros(len(data.y), dtype=torch.bool)
    reviewed[data.labelled_rows[:4]] = True
    problem = prepare(data, FEATURES, seed=0, reviewed=reviewed)
    assert len(problem.fair.labelled_rows) == len(data.labelled_rows) - 4
    assert len(problem.fair.unlabelled_rows) == len(data.unlabelled_rows)
    assert len(problem.training.labelled_rows) == len(data.labelled_rows)  # they do teach


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["gone"], 1), (["photos"], 1), (["run", "--port", "x"], 2), (["run", "--overwrite"], 2)],
)
def test_wrong_use_is_one_sentence(
    tmp_path: Path, arguments: list[str], code: int, saas_here: Here
) -> None:
    (tmp_path / "photos").mkdir()
    done = saas_here("review", *arguments, "--no-browser", cwd=tmp_path)
    assert done.code == code
    assert "Traceback" not in done.errors
