"""What a run does and writes, called as a function."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.posterior import hard_labels
from saas_ssl.labelling.job import DEFAULT_SCRUTINY, run_job
from saas_ssl.labelling.journal import Journal
from saas_ssl.labelling.planning import describe
from saas_ssl.labelling.request import Truth
from saas_ssl.labelling.stopping import StopSignals
from saas_ssl.progress.display import Display
from saas_ssl.runs.checkpoints import Checkpoints
from saas_ssl.runs.directory import check_target, is_running, new_run, old_run
from saas_ssl.training.forecast import planned_passes
from saas_ssl.training.held_out import Evidence, infer_with_held_out
from saas_ssl.training.outputs import predict
from saas_ssl.training.pipeline import (
    infer_posterior,
    initial_passes,
    initial_posterior,
    train_classifier,
)
from saas_ssl.training.problem import Problem, prepare
from saas_ssl.training.ranks import Ranks
from saas_ssl.trust.calibration import calibration_error, fit_calibration
from saas_ssl.trust.decisions import LabelRow
from saas_ssl.trust.judging import Scrutiny
from small_problems import FEATURES, features, with_
from toy import last

ALL_LABELS = Scrutiny(label_folds=0)


def run(directory: Path, truth: Truth, labelled_per_class: int = 4) -> dict[str, Any]:
    problem = prepare(features(labelled_per_class=labelled_per_class), FEATURES, seed=1)
    return run_problem(problem, truth, directory)


def run_problem(
    problem: Problem, truth: Truth, directory: Path, scrutiny: Scrutiny = DEFAULT_SCRUTINY
) -> dict[str, Any]:
    with Display(Console(quiet=True), planned_passes(problem)) as display:
        journal = Journal(
            directory,
            Checkpoints(directory / "checkpoint"),
            display,
            StopSignals(),
            every=1e9,
            ranks=Ranks(),
        )
        about = {"command": None, "request": {"data": "blobs"}, **describe(problem, truth, 0)}
        about["scrutiny"] = scrutiny.model_dump()
        results = run_job(problem, truth, directory, journal, about, scrutiny=scrutiny)
    assert results is not None
    return results


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
    run_problem(problem, Truth(), tmp_path)
    with (tmp_path / "labels.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "inferred"]
    initial = hard_labels(initial_posterior(problem)).tolist()
    assert [row["label"] for row in rows] == [data.classes[k] for k in initial]
    # What the classifier says is all that is known of how sure they are.
    assert len({row["probability"] for row in rows}) > len(rows) // 2


def test_the_forecast_of_image_passes_is_what_is_spent(tmp_path: Path) -> None:
    problem = prepare(features(), FEATURES, seed=1)
    results = run_problem(problem, Truth(), tmp_path, ALL_LABELS)
    spent = results["image_passes"] + results["supervised"]["image_passes"]
    plan = planned_passes(problem)
    assert spent == sum(passes for passes in plan.values() if passes is not None)
    guessing = prepare(features(), with_(initial_posterior="supervised"), seed=1)
    (tmp_path / "guessing").mkdir()
    guessed = run_problem(guessing, Truth(), tmp_path / "guessing", ALL_LABELS)
    assert guessed["image_passes"] - results["image_passes"] == initial_passes(guessing) > 0
    passes = [plan["one"] for plan in (planned_passes(guessing), plan)]
    assert passes[0] - passes[1] == initial_passes(guessing)  # type: ignore[operator]
    unknown = planned_passes(prepare(features(), with_(classifier_schedule="halving"), seed=1))
    assert [name for name, passes in unknown.items() if passes is None] == ["supervised", "two"]


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
            assert (row["source"], row["label"]) == ("given", data.classes[y])
            assert (row["decision"] == "review") == bool(row["reason"]) == (probability < 1)
        else:
            assert row["source"] == "inferred"
            assert (row["decision"] == "accept") == (probability >= 0.95)
            assert (row["decision"] == "outlier") == row["reason"].startswith("unknown?")
            assert row["runner_up"] != row["label"]
            assert probability + float(row["runner_up_probability"]) <= 1.0 + 1e-5
            wrong += row["label"] != f"class {int(row['id']) % 3}"
    assert wrong / len(data.unlabelled_rows) == pytest.approx(results["saas"]["unlabelled_error"])


def test_the_raw_softmax_is_averaged_over_the_last_five_epochs(tmp_path: Path) -> None:
    problem = prepare(features(), with_(classifier_epochs=7), seed=1)
    truth = truth_of(problem.data)
    results = run_problem(problem, truth, tmp_path, ALL_LABELS)
    data = problem.training
    P_u = last(infer_posterior(problem)).P_u
    seen = [
        predict(epoch.w, problem.preprocessing, data.x, data.unlabelled_rows)
        for epoch in train_classifier(problem, P_u)
    ]
    mean = torch.stack(seen[-5:]).mean(dim=0)
    own, right = mean.gather(1, hard_labels(P_u)[:, None]).squeeze(1), hard_labels(P_u)
    assert truth.unlabelled is not None
    expected = calibration_error(own, right == truth.unlabelled)
    found = results["trust"]["measured"]["softmax_calibration_error"]
    assert found == pytest.approx(expected, abs=1e-5)


def test_probabilities_come_from_the_scores_of_phase_one(tmp_path: Path) -> None:
    problem = prepare(features(), with_(outer_iterations=4), seed=1)
    run_problem(problem, Truth(), tmp_path, Scrutiny(label_folds=3))
    seen = Evidence.none(len(problem.data.unlabelled_rows), 12, 3)
    for part in infer_with_held_out(problem, 3, initial_posterior(problem)):
        seen, labels = seen.and_of(part), hard_labels(part.outer.P_u)
    assert (seen.at > 0).all()
    y = problem.data.y[problem.data.labelled_rows]
    calibration = fit_calibration(seen.s_l, y)
    stored = load_file(tmp_path / "posterior.safetensors")["probabilities"]
    p = calibration.probabilities(seen.s_u)
    torch.testing.assert_close(stored[problem.data.y < 0], p)
    torch.testing.assert_close(stored[problem.data.y >= 0], calibration.probabilities(seen.s_l))
    with (tmp_path / "labels.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "inferred"]
    written = torch.tensor([float(row["probability"]) for row in rows])
    own = p.gather(1, labels[:, None]).squeeze(1)
    torch.testing.assert_close(written, own, atol=2e-6, rtol=0)


def test_a_wrong_given_label_is_marked_with_the_reason(tmp_path: Path) -> None:
    data = features(n=240, labelled_per_class=10, spread=0.25)
    y = data.y.clone()
    y[4] = 0  # of class 1
    settings = with_(inner_epochs=10, outer_iterations=6)
    results = run_problem(prepare(data.with_labels(y), settings, seed=1), Truth(), tmp_path)
    with (tmp_path / "labels.csv").open(newline="") as file:
        given = {row["id"]: row for row in csv.DictReader(file) if row["source"] == "given"}
    marked = [id_ for id_, row in given.items() if row["decision"] == "review"]
    assert marked == ["4"]
    assert results["trust"]["suspects"] == 1
    assert (given["4"]["label"], given["4"]["runner_up"]) == ("class 0", "class 1")
    assert "given as class 0 but without this label it looks like class 1" in given["4"]["reason"]
    assert float(given["4"]["probability"]) < 0.25 * float(given["4"]["runner_up_probability"])
    assert {row["probability"] for id_, row in given.items() if id_ != "4"} == {"1.0"}


@pytest.mark.parametrize("accept", [0.5, 0.999])
def test_accept_draws_the_line(tmp_path: Path, accept: float) -> None:
    data = features(n=360, labelled_per_class=20, spread=0.25)
    data.x[data.unlabelled_rows[:60]] = data.x.mean(dim=0)  # between the classes
    problem = prepare(data, with_(inner_epochs=10, outer_iterations=6), seed=1)
    results = run_problem(problem, Truth(), tmp_path, Scrutiny(accept=accept))
    with (tmp_path / "labels.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "inferred"]
    accepted = [row for row in rows if row["decision"] == "accept"]
    assert [row for row in rows if float(row["probability"]) >= accept] == accepted
    assert results["accepted"] == len(accepted)
    assert results["accepted"] + results["review"] + results["outliers"] == len(rows)
    assert (len(accepted) > 200) == (accept < 0.9)
    assert (results["outliers"] > 20) == (accept > 0.9)  # accepted rows are none


def test_after_a_checkpoint_an_error_leaves_what_is_needed_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "run"

    def failing(directory: Path) -> None:
        (directory / "run.json").write_text("{}")
        Checkpoints(directory / "checkpoint").save({"stage": "one"}, {})
        raise OSError

    with pytest.raises(OSError), new_run(out) as directory:  # noqa: PT011
        failing(directory)
    assert not is_running(out)
    with pytest.raises(ValueError, match="give --resume to continue it, or --overwrite"):
        check_target(out, overwrite=False)
    with old_run(out):
        with pytest.raises(ValueError, match="is being written by another process"):
            check_target(out, overwrite=True)
        with pytest.raises(ValueError, match="is being written by another process"), old_run(out):
            pass
        found = Checkpoints(out / "checkpoint").newest()
        assert found is not None
        assert found.facts == {"stage": "one"}
    assert [path.name for path in out.iterdir()] == ["run.json"]
