import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from saas_ssl.data import PartiallyLabelled
from saas_ssl.job import Truth, run_job, total_image_passes
from saas_ssl.labels import LabelRow, label_rows, write_labels
from saas_ssl.pipeline import (
    infer_posterior,
    initial_posterior,
    predict,
    prepare,
    train_classifier,
)
from saas_ssl.posterior import hard_labels
from saas_ssl.progress import Display, duration
from saas_ssl.runs import check_target, free_name, run_directory
from test_pipeline import FEATURES, features, with_
from toy import last


def run(directory: Path, truth: Truth, labelled_per_class: int = 4) -> dict[str, Any]:
    problem = prepare(features(labelled_per_class=labelled_per_class), FEATURES, seed=1)
    with Display(Console(quiet=True), total_image_passes(problem)) as display:
        return run_job(problem, truth, directory, display, {"request": {"data": "blobs"}})


def truth_of(data: PartiallyLabelled) -> Truth:
    y = torch.arange(len(data.y)) % 3
    return Truth(unlabelled=y[data.unlabelled_rows], test=data.with_labels(y))


def test_a_run_writes_what_the_design_says(tmp_path: Path) -> None:
    data = features()
    results = run(tmp_path, truth_of(data))
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["results"] == results
    assert record["seed"] == 1
    derived: dict[str, object] = {"min_probability": 0.5 / 3, "labelled_batch_size": 12}
    derived |= {"classifier_augmentation": "none"}
    assert record["config"] == {**FEATURES.model_dump(), **derived}
    assert record["data"]["fingerprint"] == data.fingerprint()
    assert record["versions"]["torch"] == torch.__version__
    assert record["hardware"]["threads"] == 1
    for name in ("supervised", "saas"):
        assert 0.0 <= results[name]["test_error"] <= 1.0
        assert results[name]["validation_error"] is None
    assert 0.0 <= results["saas"]["unlabelled_error"] <= 1.0

    metrics = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    one = [line for line in metrics if line["phase"] == "one"]
    two = [line for line in metrics if line["phase"] == "two"]
    assert [line["outer"] for line in one] == [0, 1]
    for field in ("cumulative_loss", "changed", "image_passes", "seconds", "unlabelled_accuracy"):
        assert all(isinstance(line[field], float | int) for line in one)
    assert [line["epoch"] for line in two] == [0, 1, 2, 3]
    assert two[-1]["image_passes"] == results["image_passes"]
    assert one[-1]["unlabelled_accuracy"] == pytest.approx(1 - results["saas"]["unlabelled_error"])


def test_without_outer_iterations_the_initial_posterior_is_used(tmp_path: Path) -> None:
    data = features()
    problem = prepare(data, with_(outer_iterations=0), seed=1)
    with Display(Console(quiet=True), total_image_passes(problem)) as display:
        run_job(problem, Truth(), tmp_path, display, {})
    with (tmp_path / "labels.csv").open(newline="") as file:
        labels = [row["label"] for row in csv.DictReader(file) if row["source"] == "inferred"]
    initial = hard_labels(initial_posterior(problem)).tolist()
    assert labels == [data.classes[k] for k in initial]


def test_the_forecast_of_image_passes_is_what_is_spent(tmp_path: Path) -> None:
    results = run(tmp_path, Truth())
    spent = results["image_passes"] + results["supervised"]["image_passes"]
    assert spent == total_image_passes(prepare(features(), FEATURES, seed=1))
    unknown = with_(classifier_schedule="halving")
    assert total_image_passes(prepare(features(), unknown, seed=1)) is None


def test_what_is_not_known_is_null(tmp_path: Path) -> None:
    results = run(tmp_path, Truth(), labelled_per_class=20)
    assert results["saas"]["unlabelled_error"] is None
    assert results["saas"]["test_error"] is None
    assert 0.0 <= results["saas"]["validation_error"] <= 1.0
    assert "unlabelled_accuracy" in (tmp_path / "metrics.jsonl").read_text()
    record = json.loads((tmp_path / "run.json").read_text())
    assert (record["data"]["labelled"], record["data"]["validation"]) == (54, 6)
    # Validation rows are given labels too: no row is missing from the table.
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 1 + 120


def test_labels_csv_has_every_row_in_order(tmp_path: Path) -> None:
    data = features()
    results = run(tmp_path, truth_of(data))
    with (tmp_path / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(LabelRow._fields)
    assert [row["id"] for row in rows] == list(data.ids)
    wrong = 0
    for row, y in zip(rows, data.y.tolist(), strict=True):
        probability = float(row["probability"])
        if y >= 0:
            assert (row["source"], row["label"], row["decision"]) == (
                "given",
                data.classes[y],
                "accept",
            )
        else:
            assert row["source"] == "inferred"
            assert row["decision"] == ("accept" if probability >= 0.95 else "review")
            assert row["runner_up"] != row["label"]
            assert probability + float(row["runner_up_probability"]) <= 1.0 + 1e-5
            wrong += row["label"] != f"class {int(row['id']) % 3}"
    assert wrong / len(data.unlabelled_rows) == pytest.approx(results["saas"]["unlabelled_error"])


def test_probabilities_are_averaged_over_the_last_five_epochs(tmp_path: Path) -> None:
    settings = with_(classifier_epochs=7)
    problem = prepare(features(), settings, seed=1)
    with Display(Console(quiet=True), total_image_passes(problem)) as display:
        run_job(problem, Truth(), tmp_path, display, {})
    data = problem.training
    P_u = last(infer_posterior(problem)).P_u
    seen = [
        predict(epoch.w, problem.preprocessing, data.x, data.unlabelled_rows)
        for epoch in train_classifier(problem, P_u)
    ]
    mean = torch.stack(seen[-5:]).mean(dim=0)
    expected = mean.gather(1, hard_labels(P_u)[:, None]).squeeze(1)
    with (tmp_path / "labels.csv").open(newline="") as file:
        written = [
            float(row["probability"]) for row in csv.DictReader(file) if row["source"] == "inferred"
        ]
    torch.testing.assert_close(torch.tensor(written), expected, atol=2e-6, rtol=0)


def test_names_survive_the_csv(tmp_path: Path) -> None:
    names = ['a,"quoted"\nname', "ümlaut", "plain"]
    data = PartiallyLabelled(torch.rand(3, 2), torch.tensor([0, -1, -1]), ["x, y", "z"], names)
    f = torch.tensor([[0.3, 0.7], [0.99, 0.01]])
    write_labels(tmp_path / "l.csv", list(label_rows(data, torch.tensor([0, 0]), f)))
    with (tmp_path / "l.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    assert [row[0] for row in rows] == names
    assert rows[0][1:] == ["x, y", "1.0", "given", "accept", "", "0.0"]
    assert rows[1][1:] == ["x, y", "0.3", "inferred", "review", "z", "0.7"]
    assert rows[2][1:5] == ["x, y", "0.99", "inferred", "accept"]


def test_a_run_directory_is_whole_or_not_there(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "run"

    def interrupted() -> None:
        with run_directory(out) as directory:
            (directory / "run.json").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list((tmp_path / "deep").iterdir()) == []
    with run_directory(out) as directory:
        (directory / "run.json").write_text("whole")
        assert not out.exists()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["run"]
    assert (out / "run.json").read_text() == "whole"


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    out = tmp_path / "run"
    for text in ("first", "second"):
        with run_directory(out, overwrite=text == "second") as directory:
            (directory / "run.json").write_text(text)
    assert (out / "run.json").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    with pytest.raises(ValueError, match="exists"), run_directory(out):
        pass
    with pytest.raises(RuntimeError), run_directory(out, overwrite=True):
        raise RuntimeError
    assert (out / "run.json").read_text() == "second"  # a failed attempt leaves the old run


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_only_a_run_directory_is_ever_replaced(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "mine"
    if kind == "folder":
        out.mkdir()
        (out / "photo.jpg").write_text("precious")
    elif kind == "file":
        out.write_text("precious")
    else:
        (tmp_path / "target").mkdir()
        (tmp_path / "target" / "run.json").write_text("{}")
        out.symlink_to(tmp_path / "target")
    with pytest.raises(ValueError, match="not a run directory"), run_directory(out, overwrite=True):
        pass
    assert out.exists()


def test_what_a_user_put_into_a_run_is_never_deleted(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with run_directory(out) as directory:
        (directory / "run.json").write_text("first")
    (out / "photos").mkdir()
    with pytest.raises(ValueError, match="holds photos, which no run has written"):
        check_target(out, overwrite=True)


def test_a_finished_run_is_kept_even_if_its_place_was_taken(tmp_path: Path) -> None:
    out = tmp_path / "run"

    def taken() -> None:
        with run_directory(out) as directory:
            (directory / "run.json").write_text("mine")
            out.mkdir()

    with pytest.raises(ValueError, match=r"run exists: .*; this run is in .*run-2"):
        taken()
    assert (tmp_path / "run-2" / "run.json").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run-2"]


def test_new_folders_are_readable_like_any_other(tmp_path: Path) -> None:
    with run_directory(tmp_path / "run") as directory:
        (directory / "run.json").write_text("{}")
    (tmp_path / "usual").mkdir()
    modes = [(tmp_path / name).stat().st_mode for name in ("run", "usual")]
    assert modes[0] == modes[1]


def test_free_name(tmp_path: Path) -> None:
    assert free_name(tmp_path / "demo") == tmp_path / "demo"
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo-2").mkdir()
    assert free_name(tmp_path / "demo") == tmp_path / "demo-3"


def test_durations_are_said_in_fitting_units() -> None:
    said = [duration(seconds) for seconds in (0.4, 45, 125, 7000, 12_600, 181_440)]
    assert said == ["0 s", "45 s", "2 min", "117 min", "3.5 h", "2.1 days"]
