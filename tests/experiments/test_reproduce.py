"""`saas reproduce`: every experiment runs, draws and judges; interrupted, it goes on as if not."""

import ast
import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from command import Here
from processes import LIMIT, started, wait_until
from saas_ssl.algorithm.network import copied_state
from saas_ssl.commands.app import app
from saas_ssl.experiments import trial
from saas_ssl.experiments.corrupted_labels import corrupted
from saas_ssl.experiments.label_speed import moments
from saas_ssl.experiments.protocol import Kind, base, kind_of, part_of_test
from saas_ssl.experiments.reproduce import (
    EXPERIMENTS,
    Conditions,
    conditions_of,
    listing,
    reproduce_into,
)
from saas_ssl.experiments.speed import training_losses
from saas_ssl.experiments.trial import Case
from saas_ssl.experiments.unlabelled_count import same_steps
from saas_ssl.sources.digits import read_digits
from saas_ssl.training.devices import CPU
from saas_ssl.training.pipeline import supervised_epochs, train_supervised

SMOKE = {"scale": "smoke", "data": "digits:train", "test": "digits:test", "device": "cpu"}


def reproduce(name: str, out: Path, seeds: range = range(2), **options: Any) -> tuple[Any, str]:
    """(Results, what was printed)."""
    text = StringIO()
    console = Console(file=text, markup=False, emoji=False, highlight=False, soft_wrap=True)
    conditions = Conditions.model_validate({"experiment": name, **SMOKE})
    reproduce_into(conditions, seeds, out, options.pop("workers", 1), console, **options)
    return json.loads((out / "results.json").read_text()), text.getvalue()


def without_times(results: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in run.items() if name not in ("seconds", "wall")}
        for run in results["runs"]
    ]


class Reproduced(NamedTuple):
    out: Path
    results: Any
    text: str


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reproduced]:
    """An experiment of two seeds in this process, never interrupted; to be read only."""

    @cache
    def once(name: str) -> Reproduced:
        out = tmp_path_factory.mktemp(name) / "out"
        return Reproduced(out, *reproduce(name, out))

    return once


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_at_the_scale_of_smoke(
    name: str, undisturbed: Callable[[str], Reproduced]
) -> None:
    out, results, text = undisturbed(name)
    arms = EXPERIMENTS[name].arms(EXPERIMENTS[name].protocol("smoke"))
    assert {(run["arm"], run["seed"]) for run in results["runs"]} == {
        (arm, seed) for arm in arms for seed in range(2)
    }
    for run in results["runs"]:
        for error in ("test_error", "unlabelled_error"):
            assert 0 <= run.get(error, 0.5) <= 1
    for verdict in results["verdicts"]:
        assert verdict["verdict"] in ("holds", "does not hold", "undecided at this scale")
        for effect in verdict["effects"]:
            assert effect["low"] <= effect["mean"] <= effect["high"]
            assert effect["runs"] == 2
    with Image.open(out / "figure.png") as figure:
        figure.load()
        assert figure.width > 500
    assert (out / "figure.svg").read_text().startswith("<?xml")
    assert (out / "summary.md").read_text() in text
    assert "image passes through" in text
    assert results["conditions"]["protocol"]["kind"] == "smoke"
    assert {"cores", "threads"} <= set(results["hardware"])
    assert not any(path.is_dir() for path in (out / "cells").iterdir())  # no checkpoints left


def test_the_same_seeds_give_the_same_numbers_in_any_process(
    tmp_path: Path, undisturbed: Callable[[str], Reproduced]
) -> None:
    one = undisturbed("resnet-table").results
    two, _ = reproduce("resnet-table", tmp_path / "two", range(2), workers=2)
    assert without_times(one) == without_times(two)
    assert without_times(one)[0] != without_times(one)[2]  # another seed, another result


def test_seeds_can_be_added_and_nothing_is_repeated(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first, _ = reproduce("threshold", out, range(1))
    stamps = {path: path.stat().st_mtime_ns for path in (out / "cells").glob("*.json")}
    with pytest.raises(ValueError, match="--resume to continue it, or --overwrite"):
        reproduce("threshold", out, range(2))
    results, text = reproduce("threshold", out, range(2), resume=True)
    assert "2 runs of 4" in text
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert without_times(results)[:2] == without_times(first)
    _, text = reproduce("threshold", out, range(2), resume=True)
    assert "All 4 runs are there." in text
    with pytest.raises(ValueError, match="another experiment"):
        reproduce("init", out, range(2), resume=True)
    reproduce("init", out, range(1), overwrite=True)
    assert {path.stem for path in (out / "cells").glob("*.json")} == {"resample-0", "reset-0"}


def test_foreign_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    for resume, overwrite in ((False, False), (True, False), (False, True)):
        with pytest.raises(ValueError, match=r"thesis\.tex"):
            reproduce("init", tmp_path, resume=resume, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def case(folder: Path, seed: int = 0) -> Case:
    digits = read_digits(image_size=8)
    protocol = base("smoke").changed(outer_iterations=3, inner_epochs=1, width=2)
    return Case(digits, digits, protocol, seed, CPU, folder)


def test_phase_one_goes_on_after_its_last_outer_iteration(tmp_path: Path) -> None:
    straight = trial.infer(own := case(tmp_path / "a"), own.problem(), snapshots=(1, 3))
    cut = case(tmp_path / "b")
    trial.infer(cut, cut.problem(outer_iterations=2), snapshots=(1,))
    again = trial.infer(cut, cut.problem(), snapshots=(1, 3))
    assert torch.equal(again.P_u, straight.P_u)
    assert [line["accuracy"] for line in again.lines] == [
        line["accuracy"] for line in straight.lines
    ]
    assert set(again.labels) == {1, 3}
    assert all(torch.equal(again.labels[m], straight.labels[m]) for m in (1, 3))


def test_long_runs_say_how_far_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_MINUTE", -1.0)
    lines: list[str] = []
    own = replace(case(tmp_path), tell=lines.append)
    trial.run_saas(own, own.problem())
    assert [line.partition(",")[0] for line in lines] == [
        *(f"outer {m}/3" for m in (1, 2, 3)),
        *["phase two: classifier"] * 4,
    ]
    assert re.fullmatch(r"outer 1/3, \d+\.\d\d% wrong labels", lines[0])
    assert lines[-1].startswith("phase two: classifier, epoch 4, training loss ")


class StopError(Exception):
    """The process is gone."""


@pytest.mark.parametrize("left", [15, 1, 0])  # epochs, of 16
def test_phase_two_goes_on_after_its_last_checkpoint(
    left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any, **options: Any) -> Any:
        for n, epoch in enumerate(train_supervised(*arguments, **options), 1):
            yield epoch
            if n == 16 - left:
                raise StopError

    monkeypatch.setattr(trial, "_MINUTE", -1.0)
    own, cut = case(tmp_path / "a"), case(tmp_path / "b")
    problem = own.problem()
    assert supervised_epochs(problem) == 16
    straight = copied_state(trial.supervise(own, problem))
    fresh = copied_state(problem.new_network(torch.Generator().manual_seed(0)))
    monkeypatch.setattr(trial, "train_supervised", interrupted)
    with pytest.raises(StopError):
        trial.supervise(cut, problem)
    monkeypatch.setattr(trial, "train_supervised", train_supervised)
    again = copied_state(trial.supervise(cut, problem))
    assert all(torch.equal(again[name], straight[name]) for name in straight)
    assert any(not torch.equal(again[name], fresh[name]) for name in straight)


COMMAND = ["reproduce", "resnet-table", "--seeds", "2", "--workers", "2", "--out", "out"]


def test_killed_or_interrupted_it_goes_on_with_what_is_missing(
    tmp_path: Path, undisturbed: Callable[[str], Reproduced], saas_here: Here
) -> None:
    out = tmp_path / "out"
    with started(*COMMAND, cwd=tmp_path) as process:
        wait_until(lambda: any((out / "cells").glob("*.json")), process)
        os.kill(process.pid, signal.SIGINT)
        process.wait(LIMIT)
        assert process.stdout is not None
        assert "The same command with --resume goes on" in process.stdout.read()
        assert process.returncode == 130
    there = {path: path.stat().st_mtime_ns for path in (out / "cells").glob("*.json")}
    assert 1 <= len(there) < 4
    with started(*COMMAND, "--resume", cwd=tmp_path) as process:
        wait_until(lambda: len(list((out / "cells").glob("*.json"))) > len(there), process)
        os.kill(process.pid, signal.SIGKILL)
    done = saas_here(*COMMAND, "--workers", "1", "--resume", cwd=tmp_path)
    assert done.code == 0, done.errors
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in there.items())
    results = json.loads((out / "results.json").read_text())
    assert without_times(results) == without_times(undisturbed("resnet-table").results)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["magic"], "unknown experiment 'magic': choose one of corrupted-labels, threshold"),
        (["init", "--scale", "huge"], "unknown scale 'huge': choose one of smoke, laptop, paper"),
        (["init", "--scale", "laptop"], "name the data with --data, such as idx:DIR"),
        (["init", "--scale", "paper"], "name the data with --data, such as cifar10:DIR"),
        (["init", "--scale", "paper", "--data", "digits:train"], "is for the original data"),
        (["init", "--data", "nowhere", "--test", "digits:test"], "nowhere does not exist"),
        (["init", "--data", "some.npz"], "name the test data with --test"),
        (["init", "--data", "some.npz", "--test", "some.npz"], "rows without a label"),
        (["init", "--data", "features.npz", "--test", "features.npz"], "are about images"),
        (["init", "--data", "few.npz", "--test", "few.npz"], "cannot keep 25 labels of class"),
        (["init", "--device", "toaster"], "unknown device 'toaster'"),
    ],
)
def test_wrong_use_is_told_in_one_sentence(
    tmp_path: Path, arguments: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.zeros((6, 8, 8), dtype=np.uint8)
    np.savez("some.npz", x=x, y=[0, 0, 1, 1, -1, -1])
    np.savez("few.npz", x=x, y=[0, 0, 0, 1, 1, 1])
    np.savez("features.npz", x=np.eye(6, 4, dtype=np.float32), y=[0, 0, 0, 1, 1, 1])
    done = CliRunner().invoke(app, ["reproduce", *arguments, "--out", "out"])
    assert isinstance(done.exception, ValueError)
    assert complaint in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_list_and_no_name(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["reproduce", "--list"])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.output.splitlines()] == list(EXPERIMENTS)
    assert CliRunner().invoke(app, ["reproduce"]).exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_files_say_how_they_are_run_and_what_came_out(name: str) -> None:
    experiment = EXPERIMENTS[name]
    assert experiment.title in listing()
    about = experiment.about or ""
    assert f"saas reproduce {name} --scale laptop --data" in about
    for part in ("The paper", "Ours", "Runtime", "smoke", "laptop", "paper"):
        assert part in about, part


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_protocol_is_whole(name: str) -> None:
    for kind in get_args(Kind):
        protocol = EXPERIMENTS[name].protocol(kind)
        assert protocol.kind == kind
        assert EXPERIMENTS[name].arms(protocol)
    for kind, labels, T in (("cifar10", 4000, 40), ("svhn", 1000, 5)):
        paper = EXPERIMENTS[name].protocol(kind)  # type: ignore[arg-type]
        own = paper.settings
        assert (paper.labels, paper.unlabelled, own.inner_epochs) == (labels, None, T)
        assert (own.weight_lr, own.posterior_lr, own.batch_size) == (0.01, 1.0, 100)
        assert (own.classifier_schedule, own.width) == ("halving", None)
        large = name == "conv-large-table"
        assert own.network == ("conv_large" if large else "resnet18")
        assert own.whiten == large


def test_the_tables_have_the_paper_s_number_of_outer_iterations() -> None:
    for name in ("resnet-table", "conv-large-table", "sota-table", "no-augmentation"):
        for kind, M in (("cifar10", 135), ("svhn", 75)):
            own = EXPERIMENTS[name].protocol(kind)  # type: ignore[arg-type]
            assert own.settings.outer_iterations == M


def test_scales_and_parts() -> None:
    assert kind_of("smoke", "cifar10:somewhere", 3) == "smoke"
    assert kind_of("laptop", "photos", 3) == "colour"
    assert kind_of("laptop", "idx:mnist", 1) == "grey"
    assert kind_of("paper", "svhn:somewhere", 3) == "svhn"
    assert part_of_test("idx:mnist") == part_of_test("idx:mnist:train") == "idx:mnist:test"
    assert part_of_test("digits") == "digits:test"
    assert part_of_test("photos") is None
    assert conditions_of("init", "smoke", None, None, "cpu", 1).test == "digits:test"


def test_corrupted_labels_are_nested_and_as_many_as_said() -> None:
    y = torch.arange(10_000) % 10
    before = corrupted(y, 0.0, 10)
    assert torch.equal(before, y)
    for share in (0.25, 0.5, 0.75, 1.0):
        now = corrupted(y, share, 10)
        assert ((now != y).double().mean() - 0.9 * share).abs() < 0.02
        changed = before != y
        assert torch.equal(now[changed], before[changed])
        before = now


def test_training_losses_fall_and_tell_wrong_labels_from_right_ones() -> None:
    digits = read_digits(image_size=8)
    x, y = digits.x[:300], digits.y[:300]
    settings = base("smoke").settings
    right = training_losses(x, y, 10, settings, CPU, 0, 4)
    assert right == training_losses(x, y, 10, settings, CPU, 0, 4)
    assert right != training_losses(x, y, 10, settings, CPU, 1, 4)
    assert right[-1] < right[0]
    wrong = training_losses(x, corrupted(y, 1.0, 10), 10, settings, CPU, 0, 4)
    assert wrong[-1] > right[-1] + 0.3


def test_moments_are_spread_and_end_with_the_last() -> None:
    assert moments(30) == [1, 2, 5, 10, 20, 30]
    assert moments(3) == [1, 2, 3]
    assert moments(1) == [1]


def test_arms_with_the_same_steps_differ_from_the_paper_s_in_their_lengths_alone() -> None:
    grey = EXPERIMENTS["unlabelled-count"].protocol("grey")
    for n in (250, 1000, 5000):
        own = same_steps(grey, n)
        assert own["inner_epochs"] * n == 5 * 1000
        assert own["classifier_epochs"] * n == 20 * 1000
        step = own["posterior_lr"] * own["inner_epochs"]
        assert step == pytest.approx(grey.settings.posterior_lr * grey.settings.inner_epochs)
    arms = EXPERIMENTS["unlabelled-count"].arms
    assert "5000-same-steps" in arms(grey)
    assert arms(base("svhn")) == ("0", "5000", "10000", "20000", "40000", "72257")


def test_experiments_do_their_statistics_in_one_place() -> None:
    folder = Path(trial.__file__).parent
    for path in folder.glob("*.py"):
        if path.name == "statistics.py":
            continue
        names = {
            node.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute)
        }
        assert not names & {"stdev", "ppf", "choice", "percentile", "quantile"}, path.name
        assert not re.search(r"import .*\b(stdev|pstdev|variance)\b", path.read_text()), path.name
