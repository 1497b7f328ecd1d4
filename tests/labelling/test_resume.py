"""A run that is killed, stopped, or out of disk goes on, and ends as if nothing had happened.

What is killed or stopped is a real process. Going on is mostly tested within this process, because
starting another one takes seconds; the run that is killed twenty times ends in one of its own.
"""

import csv
import io
import json
import os
import platform
import random
import re
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from rich.console import Console

from command import Here
from processes import (
    ONE,
    SUPERVISED,
    TWO,
    Ended,
    Where,
    ended,
    files,
    is_at,
    newest_facts,
    products,
    run_to_end,
    started,
    wait_until,
    where,
)
from saas_ssl.labelling.session import label_into
from saas_ssl.labelling.task import ask
from saas_ssl.runs.checkpoints import Checkpoints
from saas_ssl.training.presets import Settings

DATA = ["digits:train", "--keep-labels", "50", "--unlabelled", "1200", "--image-size", "8"]
COMMAND = ["label", *DATA, "--inner-epochs", "1", "--outer-iterations", "4", "--threads", "1"]
COMMAND += ["--langevin-temperature", "1e-4", "--set", "classifier_epochs=5", "--set", "width=4"]
EVERY_STEP, HARDLY_EVER = ["--checkpoint-every", "0.001s"], ["--checkpoint-every", "1h"]
RESUME = ["label", "--out", "run", "--resume"]
HOW = "Continue with: saas label --out run --resume"

ROWS, KILLS = 50 + 1200, 20
OUTERS, STEPS = 4, 24  # of an inner loop or epoch


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the command gives if nothing happens, and if it never saves inside a loop."""
    folder = tmp_path_factory.mktemp("reference")
    done = run_to_end(*COMMAND, "--out", "run", cwd=folder)
    assert (done.code, done.errors) == (0, "")
    found = products(folder / "run")
    names = {
        "labels.csv",
        "posterior.safetensors",
        "model.safetensors",
        "model.json",
        "report.html",
    }
    assert set(found["files"]) == names
    assert [line["phase"] for line in found["metrics"]].count("one") == OUTERS
    return {**found, "run": folder / "run"}


def assert_as_if_nothing_had_happened(run: Path, reference: dict[str, Any]) -> None:
    found = products(run)
    for name in ("metrics", "results", "files"):
        assert found[name] == reference[name]


def moments(chance: random.Random) -> list[Where]:
    """Where a run is to be killed: in the baseline, in inner loops, and in the classifier."""
    supervised = (Where(SUPERVISED, chance.randrange(110), chance.randrange(2)) for _ in range(5))
    one = (Where(ONE, chance.randrange(OUTERS), chance.randrange(STEPS)) for _ in range(8))
    # Not in the last epochs: on a busy machine it could end before it is killed.
    two = (Where(TWO, chance.randrange(3), chance.randrange(STEPS)) for _ in range(6))
    return sorted([*supervised, *one, *two])


def test_a_run_killed_twenty_times_ends_as_if_nothing_had_happened(
    reference: dict[str, Any], tmp_path: Path
) -> None:
    chance = random.Random(5)  # noqa: S311
    run, killed = tmp_path / "run", list[Where]()
    again = [*COMMAND, *EVERY_STEP, "--out", "run", "--resume"]  # the first time, there is no run

    def kill_when(condition: Callable[[], bool]) -> None:
        with started(*again, cwd=tmp_path) as process:
            wait_until(condition, process)
            time.sleep(chance.uniform(0, 0.04))
            process.kill()
            assert ended(process).code == -signal.SIGKILL
        killed.append(where(run))

    kill_when((run / "run.json").exists)
    for moment in moments(chance):
        kill_when(is_at(run, moment, after=killed[-1]))
    assert len(killed) == KILLS
    assert {place.stage for place in killed} == {SUPERVISED, ONE, TWO}
    assert sum(place.t > 0 for place in killed) >= KILLS / 2  # inside of loops and epochs
    assert not (run / "model.safetensors").exists()
    done = run_to_end(*RESUME, cwd=tmp_path)
    assert (done.code, done.errors) == (0, "")
    assert_as_if_nothing_had_happened(run, reference)


class Stopped(NamedTuple):
    folder: Path  # with the run in it
    end: Ended


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """A run that was stopped by Ctrl-C in its second inner loop, or soon after."""
    folder = tmp_path_factory.mktemp("stopped")
    with started(*COMMAND, *EVERY_STEP, "--out", "run", cwd=folder) as process:
        wait_until(is_at(folder / "run", Where(ONE, 1, 1)), process)
        process.send_signal(signal.SIGINT)
        return Stopped(folder, ended(process))


@pytest.fixture
def copy(stopped: Stopped, tmp_path: Path) -> Path:
    """A folder of one's own with the run that was stopped."""
    shutil.copytree(stopped.folder / "run", tmp_path / "run")
    return tmp_path


def test_ctrl_c_finishes_the_step_and_says_how_to_go_on(
    saas_here: Here, stopped: Stopped, reference: dict[str, Any], copy: Path
) -> None:
    code, out, errors = stopped.end
    assert (code, errors) == (130, "")
    assert out.splitlines()[-1] == f"Stopped. {HOW}"
    run = stopped.folder / "run"
    assert sorted(path.name for path in run.iterdir()) == [
        "checkpoint",
        "labels.csv",
        "metrics.jsonl",
        "run.json",
    ]
    assert where(run) > Where(ONE, 1, 1)
    assert saas_here(*RESUME, cwd=copy).code == 0
    assert_as_if_nothing_had_happened(copy / "run", reference)


def test_the_labels_so_far_are_there_and_complete(stopped: Stopped) -> None:
    run = stopped.folder / "run"
    with (run / "labels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == ROWS
    checkpoint = Checkpoints(run / "checkpoint").newest()
    assert checkpoint is not None
    record = json.loads((run / "run.json").read_text())
    inferred = [row["label"] for row in rows if row["source"] == "inferred"]
    best = checkpoint.tensors["P_u"].argmax(dim=1).tolist()
    assert inferred == [record["data"]["classes"][k] for k in best]
    assert record["results"] is None


def test_being_told_to_end_is_like_ctrl_c(
    saas_here: Here, reference: dict[str, Any], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with started(*COMMAND, *HARDLY_EVER, "--out", "run", cwd=tmp_path) as process:
        wait_until(is_at(run, Where(TWO, 0, 0)), process)
        wait_until(lambda: '"two"' in (run / "metrics.jsonl").read_text(), process)
        process.terminate()
        code, out, errors = ended(process)
    assert (code, errors) == (143, "")
    assert out.splitlines()[-1] == f"Stopped. {HOW}"
    assert where(run) > Where(TWO, 1, 0)  # nothing but the signal was a reason to save
    assert saas_here(*RESUME, cwd=tmp_path).code == 0
    assert_as_if_nothing_had_happened(run, reference)


def test_ctrl_c_twice_loses_one_outer_iteration_at_most(
    saas_here: Here, reference: dict[str, Any], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with started(*COMMAND, *HARDLY_EVER, "--out", "run", cwd=tmp_path) as process:
        wait_until(is_at(run, Where(ONE, 1, 0)), process)
        process.send_signal(signal.SIGINT)
        time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        code, _, errors = ended(process)
    assert (code, errors) == (130, "")
    # The end of an outer iteration is always saved.
    assert Where(ONE, 1, 0) <= where(run) < Where(TWO, 0, 0)
    assert len((run / "labels.csv").read_text().splitlines()) == 1 + ROWS
    assert saas_here(*RESUME, cwd=tmp_path).code == 0
    assert_as_if_nothing_had_happened(run, reference)


def test_ctrl_c_is_not_heard_any_more_when_all_is_said(tmp_path: Path) -> None:
    """Ending takes a process a second, which is long for someone who wants it to end."""
    with started(*COMMAND, *EVERY_STEP, "--out", "run", cwd=tmp_path) as process:
        wait_until(lambda: newest_facts(tmp_path / "run") is not None, process)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert f"Stopped. {HOW}\n" in process.stdout  # waits for the line
        for _ in range(40):
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        code, _, errors = ended(process)
    assert (code, errors) == (130, "")


def test_a_full_disk_is_one_sentence_and_the_run_goes_on(
    saas_here: Here, reference: dict[str, Any], tmp_path: Path
) -> None:
    def as_if_full() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (130_000, 130_000))  # less than a checkpoint

    run = tmp_path / "run"
    done = run_to_end(*COMMAND, *EVERY_STEP, "--out", "run", cwd=tmp_path, prepare=as_if_full)
    assert (done.code, done.errors) == (1, f"saas: [Errno 27] File too large. {HOW}\n")
    assert where(run) >= Where(ONE, 0, 0)
    assert Checkpoints(run / "checkpoint").newest() is not None
    assert list(run.rglob("*.partial")) == []
    assert saas_here(*RESUME, cwd=tmp_path).code == 0
    assert_as_if_nothing_had_happened(run, reference)


def change(run: Path, **values: object) -> None:
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | values, indent=2))


def test_a_command_that_was_interrupted_hears_no_further_ctrl_c(
    saas_here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter would die of it on its way out, and the exit code with it."""

    def interrupted(_run: Path) -> bool:
        signal.raise_signal(signal.SIGINT)
        return False

    monkeypatch.setattr("saas_ssl.runs.directory.is_running", interrupted)
    assert saas_here("status", "run", cwd=tmp_path).code == 130
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_ctrl_c_just_before_it_is_ignored_changes_nothing(
    saas_here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, late = signal.signal, iter([True])

    def set_late(number: int, handler: Any) -> Any:
        if handler is signal.SIG_IGN and next(late, False):
            signal.raise_signal(signal.SIGINT)
        return plain(number, handler)

    monkeypatch.setattr("signal.signal", set_late)
    assert saas_here("status", "run", cwd=tmp_path) == Ended(
        1, "", "saas: run is not a run directory\n"
    )
    assert next(late, False) is False  # it did come
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_checkpoint_that_was_cut_off_is_no_checkpoint(
    saas_here: Here, copy: Path, reference: dict[str, Any]
) -> None:
    """Its predecessor is gone, so the run begins again; what it had measured is not doubled."""
    (newest,) = (copy / "run" / "checkpoint").glob("*.safetensors")
    newest.write_bytes(newest.read_bytes()[:-1])
    (copy / "run" / "checkpoint" / "999999.json.partial").write_text("{")
    done = saas_here(*RESUME, cwd=copy)
    assert (done.code, done.errors) == (0, "")
    assert "supervised baseline" in done.out.splitlines()
    assert_as_if_nothing_had_happened(copy / "run", reference)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--inner-epochs", "9"], "inner_epochs is 1 in run, but 9 is asked for"),
        (["--set", "width=8"], "width is 4 in run, but 8 is asked for"),
        (["--seed", "3"], "seed is 0 in run, but 3 is asked for"),
        (["digits:test"], "data is digits:train in run, but digits:test is asked for"),
        (["--keep-labels", "40"], "keep_labels is 50 in run, but 40 is asked for"),
        (["--test", "digits:test"], "test is None in run, but digits:test is asked for"),
        (["--preset", "digits"], "preset is automatic in run, but digits is asked for"),
        (["--workers", "2"], "workers is 1 in run, but 2 is asked for"),
        (["--parallel", "data"], "parallel is trajectories in run, but data is asked for"),
        (["--precision", "bf16"], "precision is fp32 in run, but bf16 is asked for"),
        (["--compile"], "compile is False in run, but True is asked for"),
        (["--accept", "0.9"], "accept is 0.95 in run, but 0.9 is asked for"),
        (["--label-folds", "3"], "label_folds is 5 in run, but 3 is asked for"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_run_never_goes_on_as_another(
    saas_here: Here, stopped: Stopped, arguments: list[str], sentence: str
) -> None:
    before = files(stopped.folder)
    done = saas_here(*RESUME, *arguments, cwd=stopped.folder)
    assert done == Ended(1, "", f"saas: {sentence}\n")
    assert files(stopped.folder) == before


@pytest.mark.parametrize("package", ["saas-ssl", "torch", "numpy", "pillow"])
def test_a_run_never_goes_on_with_another_version(
    saas_here: Here, copy: Path, package: str
) -> None:
    versions = json.loads((copy / "run" / "run.json").read_text())["versions"]
    change(copy / "run", versions=versions | {package: "0.0.1"})
    before = files(copy)
    done = saas_here(*RESUME, cwd=copy)
    assert (done.code, done.out) == (1, "")
    assert done.errors.startswith(
        f"saas: run was begun with {package} 0.0.1, but this is {package}"
    )
    assert done.errors.count("\n") == 1
    assert files(copy) == before


def test_a_run_goes_on_with_another_patch_of_python(
    saas_here: Here, copy: Path, reference: dict[str, Any]
) -> None:
    (newest,) = (copy / "run" / "checkpoint").glob("*.json")
    ours, older = (f'"python": "{version}"' for version in (platform.python_version(), "3.0.0"))
    for file in (newest, copy / "run" / "run.json"):
        file.write_text(file.read_text().replace(ours, older))
    assert older in (copy / "run" / "run.json").read_text()
    done = saas_here(*RESUME, cwd=copy)
    assert (done.code, done.errors) == (0, "")
    assert_as_if_nothing_had_happened(copy / "run", reference)


def test_a_run_never_goes_on_from_a_checkpoint_of_another(saas_here: Here, copy: Path) -> None:
    """As someone leaves it who copies folders about."""
    (newest,) = (copy / "run" / "checkpoint").glob("*.json")
    facts = json.loads(newest.read_text())
    newest.write_text(json.dumps(facts | {"identity": facts["identity"] | {"seed": 3}}))
    before = files(copy)
    done = saas_here(*RESUME, cwd=copy)
    sentence = "the checkpoint in run is one of another run: seed was 3 there, not 0"
    assert (done.code, done.errors) == (1, f"saas: {sentence}\n")
    assert files(copy) == before


def test_a_run_never_goes_on_with_fewer_processes(saas_here: Here, copy: Path) -> None:
    """Those of torchrun are no --workers."""
    change(copy / "run", processes=2)
    before = files(copy)
    done = saas_here(*RESUME, cwd=copy)
    sentence = "saas: run was begun with 2 processes, but this is 1\n"
    assert (done.code, done.errors) == (1, sentence)
    assert files(copy) == before


NEEDED = ("request", "preset", "given", "config", "seed", "execution", "budget", "data", "versions")


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "null", "{}", "[" * 200_000, "\udcff"])
def test_a_broken_record_is_one_sentence(saas_here: Here, copy: Path, text: str) -> None:
    (copy / "run" / "run.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    before = files(copy)
    done = saas_here(*RESUME, cwd=copy)
    sentence = "run is not a run that can go on: it has no run.json of this version"
    assert done == Ended(1, "", f"saas: {sentence}\n")
    assert files(copy) == before


@pytest.mark.parametrize("name", [*NEEDED, "checkpoint_every", "log", "processes", "results"])
def test_a_record_of_an_earlier_version_is_one_sentence(
    saas_here: Here, copy: Path, name: str
) -> None:
    record = json.loads((copy / "run" / "run.json").read_text())
    del record[name]
    (copy / "run" / "run.json").write_text(json.dumps(record))
    before = files(copy)
    done = saas_here(*RESUME, cwd=copy)
    sentence = "run is not a run that can go on: it has no run.json of this version"
    assert done == Ended(1, "", f"saas: {sentence}\n")
    assert files(copy) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in NEEDED if name != "budget" for value in (None, 1.5)]
    + [(name, {}) for name in ("request", "data", "versions")],
)
def test_a_record_that_makes_no_sense_is_one_sentence(
    saas_here: Here, copy: Path, name: str, value: object
) -> None:
    change(copy / "run", **{name: value})
    before = files(copy)
    done = saas_here(*RESUME, cwd=copy)
    assert done.code == 1
    assert re.fullmatch(r"saas: .+\n", done.errors)
    assert files(copy) == before


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
def test_what_is_no_run_is_left_alone(
    saas_here: Here, tmp_path: Path, overwrite: list[str]
) -> None:
    done = saas_here("label", "--resume", *overwrite, cwd=tmp_path)
    assert done == Ended(1, "", "saas: name the run to go on with: --out RUN --resume\n")
    sentence = "saas: run is not a run that can go on: it has no run.json of this version\n"
    assert saas_here(*RESUME, *overwrite, cwd=tmp_path) == Ended(1, "", sentence)
    assert files(tmp_path) == {}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "photo.jpg").write_text("precious")
    for arguments in (RESUME, [*COMMAND, "--out", "run", "--resume"]):
        assert saas_here(*arguments, *overwrite, cwd=tmp_path) == Ended(1, "", sentence)
        assert files(tmp_path) == {"run/photo.jpg": b"precious"}


def test_a_finished_run_stays_as_it_is(saas_here: Here, reference: dict[str, Any]) -> None:
    folder = reference["run"].parent
    before = files(folder)
    for arguments in (RESUME, [*COMMAND, "--out", "run", "--resume"]):
        assert saas_here(*arguments, cwd=folder) == Ended(0, "run is finished already.\n", "")
        assert files(folder) == before
    done = saas_here(*RESUME, "--seed", "1", cwd=folder)
    assert done == Ended(1, "", "saas: seed is 0 in run, but 1 is asked for\n")
    done = saas_here(*COMMAND, "--out", "run", cwd=folder)
    sentence = "run exists: choose another --out, or give --overwrite"
    assert done == Ended(1, "", f"saas: {sentence}\n")
    assert files(folder) == before


def test_an_unfinished_run_is_not_written_over_unasked(saas_here: Here, stopped: Stopped) -> None:
    before = files(stopped.folder)
    done = saas_here(*COMMAND, "--out", "run", cwd=stopped.folder)
    sentence = "run exists: choose another --out, or give --resume to continue it, or --overwrite"
    assert done == Ended(1, "", f"saas: {sentence}\n")
    assert files(stopped.folder) == before


def test_two_processes_never_write_the_same_run(saas_here: Here, tmp_path: Path) -> None:
    run = tmp_path / "run"
    endless = [*COMMAND, "--outer-iterations", "100000", "--out", "run"]
    with started(*endless, cwd=tmp_path) as process:
        wait_until(is_at(run, Where(ONE, 0, 0)), process)
        sentence = "saas: run is being written by another process\n"
        for option in ("--resume", "--overwrite"):
            done = saas_here(*endless, option, cwd=tmp_path)
            assert (done.code, done.errors) == (1, sentence)
        before = where(run)
        wait_until(is_at(run, before, after=before), process)  # and is not disturbed
        process.kill()
        assert ended(process).code == -signal.SIGKILL


def write_rows(path: Path, seed: int = 0, rows: int = 60, features: int = 4) -> None:
    """Three clusters as an .npz file; every fifth row has a label."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 3
    x = rng.normal(size=(rows, features)) + 3 * y[:, None]
    np.savez(path, x=x.astype(np.float32), y=np.where(np.arange(rows) % 5 == 0, y, -1))


def test_data_that_changed_under_their_name_are_named(saas_here: Here, tmp_path: Path) -> None:
    run, table = tmp_path / "run", tmp_path / "rows.npz"
    write_rows(table)
    kept, endless = table.read_bytes(), ["--set", "classifier_epochs=100000", "--out", "run"]
    with started("label", "rows.npz", *endless, cwd=tmp_path) as process:
        wait_until(lambda: newest_facts(run) is not None, process)
        process.kill()
        assert ended(process).code == -signal.SIGKILL
    before = files(run)
    opening = "saas: the data are not those that run was begun with: "
    for changed, difference in (
        ({"seed": 1}, "as many rows, but other pixels, labels or names"),
        ({"rows": 65}, "labelled rows 12, now 13; unlabelled rows 48, now 52"),
        ({"features": 5}, "rows of shape [4], now [5]"),
    ):
        write_rows(table, **changed)
        done = saas_here(*RESUME, cwd=tmp_path)
        assert (done.code, done.errors) == (1, f"{opening}{difference}\n")
        assert files(run) == before
    table.unlink()
    done = saas_here(*RESUME, cwd=tmp_path)
    assert (done.code, done.errors) == (1, "saas: rows.npz does not exist\n")
    table.write_bytes(kept)
    done = saas_here(
        "label", "rows.npz", *endless, "--seed", "0", "--resume", "--budget", "x", cwd=tmp_path
    )
    assert done.errors == "saas: 'x' is not a length of time such as 90s, 20m, 1.5h or 2d\n"
    assert files(run) == before


def asked(run: Path, **what: Any) -> bool:
    """Whether what is asked for goes on with the run, if it is not refused."""
    return ask(**{"out": run, "resume": True, "request": {}, "given": {}, "execution": {}, **what})[
        1
    ]


def test_the_same_command_goes_on_whatever_became_of_its_settings(copy: Path) -> None:
    """Some settings are resolved at the start of a run: strong is strong-digits then."""
    given = {"classifier_augmentation": "strong", "min_probability": None}
    record = json.loads((copy / "run" / "run.json").read_text())
    assert record["config"]["classifier_augmentation"] == "strong-digits"
    change(copy / "run", given=record["given"] | given)
    assert asked(copy / "run", given=given)
    with pytest.raises(ValueError, match=r"classifier_augmentation is .*, but none is asked for"):
        asked(copy / "run", given={"classifier_augmentation": "none"})


def test_where_and_how_long_it_runs_may_change(copy: Path) -> None:
    execution = {"threads": 2, "device": "cpu"}
    assert asked(copy / "run", execution=execution, budget="1h", checkpoint_every="5m")
    assert asked(copy / "run", log="tensorboard", seed=0, preset="automatic")


def test_the_settings_of_another_run_are_other_settings(copy: Path) -> None:
    config = copy / "other.json"
    shutil.copy(copy / "run" / "run.json", config)
    assert asked(copy / "run", config=config)
    record = json.loads(config.read_text())
    other = Settings.model_validate(record["config"]).changed(inner_epochs=9).model_dump()
    config.write_text(json.dumps(record | {"config": other}))
    with pytest.raises(ValueError, match=r"inner_epochs is 1 in .*, but 9 is asked for"):
        asked(copy / "run", config=config)


def test_a_repeated_run_may_begin_with_resume(copy: Path) -> None:
    task, goes_on = ask(
        out=copy / "new",
        resume=True,
        request={},
        given={},
        execution={},
        config=copy / "run" / "run.json",
    )
    assert not goes_on
    assert task.request.data == "digits:train"


def test_a_run_that_was_killed_before_its_first_file_begins_anew(tmp_path: Path) -> None:
    """As a process leaves it that is killed when it has made its folder."""
    (tmp_path / "run" / "checkpoint").mkdir(parents=True)
    (tmp_path / "run" / "checkpoint" / "lock").touch()
    (tmp_path / "run" / "run.json.partial").write_text("{")
    assert not asked(tmp_path / "run", request={"data": "digits:train", "keep_labels": 50})


def test_a_run_that_was_killed_after_its_last_file_is_finished(
    saas_here: Here, reference: dict[str, Any], tmp_path: Path
) -> None:
    """As a process leaves it that is killed when only its checkpoints are to be removed."""
    run = tmp_path / "run"
    shutil.copytree(reference["run"], run)
    (run / "checkpoint").mkdir()
    (run / "checkpoint" / "lock").touch()
    Checkpoints(run / "checkpoint").save({"stage": "two"}, {})
    assert saas_here(*RESUME, cwd=tmp_path) == Ended(0, "run is finished already.\n", "")
    assert_as_if_nothing_had_happened(run, reference)


def test_a_run_that_another_process_has_finished_meanwhile_stays_finished(
    reference: dict[str, Any], copy: Path
) -> None:
    """Between what it says and the lock of the run, a process reads nothing but checkpoints."""
    run = copy / "run"

    class Meanwhile(io.StringIO):
        def write(self, text: str) -> int:
            if "This will take about" in text:
                shutil.rmtree(run)
                shutil.copytree(reference["run"], run)
            return super().write(text)

    task, goes_on = ask(out=run, resume=True, request={}, given={}, execution={})
    label_into(task, Console(file=Meanwhile(), width=200), resume=goes_on)
    assert files(run) == files(reference["run"])


def test_all_is_on_the_disk_before_a_run_calls_itself_finished(
    saas_here: Here, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power loss leaves a finished run with empty files, or numbers that were never there.

    Each file is listed when os.fsync was called for it, without the name it has until it is whole.
    """
    fsync, seen = os.fsync, list[str]()

    def noted(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        seen.append(Path(path).name.removesuffix(".partial"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    assert saas_here(*RESUME, *HARDLY_EVER, cwd=copy).code == 0
    checkpoint = next(n for n, name in enumerate(seen) if re.fullmatch(r"\d+\.json", name))
    assert "metrics.jsonl" in seen[:checkpoint]  # the checkpoint says how long it is
    last = len(seen) - 1 - seen[::-1].index("run.json")
    first = seen.index("run.json")
    written = set(seen[first + 1 : last])
    assert written >= {"labels.csv", "posterior.safetensors", "model.safetensors", "model.json"}
    assert newest_facts(copy / "run") is None
