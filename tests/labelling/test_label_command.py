"""`saas label` and `saas predict` as a user calls them: real files, and real processes where it
matters how one starts, prints and ends; what is refused is mostly refused within this one.
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

from command import QUICK, README, SAAS, Here, rows_of, saas
from photos import CLASSES, write_photos
from saas_ssl import load


class Run(NamedTuple):
    folder: Path
    truth: dict[str, str]
    text: str


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A folder of photos, two of them broken, labelled by the command."""
    folder = tmp_path_factory.mktemp("label")
    truth = write_photos(folder / "photos", n=180, labelled=22)
    (folder / "photos" / "unlabeled" / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    (folder / "photos" / "notes.txt").write_text("not a photo")
    done = saas("label", "photos", "--out", "runs/a", *QUICK, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return Run(folder, truth, done.stdout)


def test_every_photo_gets_a_label(finished: Run) -> None:
    rows = rows_of(finished.folder / "runs" / "a" / "labels.csv")
    assert [row["id"] for row in rows] == sorted(finished.truth)
    for row in rows:
        assert row["source"] == ("inferred" if row["id"].startswith("unlabeled") else "given")
    right = sum(row["label"] == finished.truth[row["id"]] for row in rows)
    assert right > 0.95 * len(rows)


def test_the_run_directory_is_complete_and_holds_no_pickle(finished: Run) -> None:
    run = finished.folder / "runs" / "a"
    assert sorted(path.name for path in run.iterdir()) == [
        "labels.csv",
        "metrics.jsonl",
        "model.json",
        "model.safetensors",
        "posterior.safetensors",
        "report.html",
        "run.json",
        "skipped.csv",
    ]
    skipped = {row["id"]: row["reason"] for row in rows_of(run / "skipped.csv")}
    assert set(skipped) == {"notes.txt", "unlabeled/broken.jpg"}
    posterior = load_file(run / "posterior.safetensors")
    rows = rows_of(run / "labels.csv")
    assert posterior["P_u"].shape == (180 - 66, 3)
    inferred = [rows[row] for row in posterior["rows"]]
    assert [row["source"] for row in inferred] == ["inferred"] * len(inferred)
    labels = [CLASSES[k] for k in posterior["P_u"].argmax(axis=1)]
    assert [row["label"] for row in inferred] == labels
    record = json.loads((run / "run.json").read_text())
    assert record["request"]["data"] == "photos"
    assert record["data"]["skipped"] == 2
    results = record["results"]
    assert results["saas"]["unlabelled_error"] is None
    assert results["saas"]["test_error"] is None
    assert 0.0 <= results["saas"]["validation_error"] <= 1.0
    for name, decision in (("accepted", "accept"), ("review", "review"), ("outliers", "outlier")):
        assert results[name] == sum(row["decision"] == decision for row in inferred)
    assert record["scrutiny"] == {"accept": 0.95, "label_folds": 5}
    assert posterior["probabilities"].shape == (180, 3)
    assert results["trust"]["left_out"] > 0
    for line in (run / "metrics.jsonl").read_text().splitlines():
        if json.loads(line)["phase"] == "one":
            assert 0.0 <= json.loads(line)["inner_error"] <= 1.0


def test_the_summary_speaks_plainly(finished: Run) -> None:
    record = json.loads((finished.folder / "runs" / "a" / "run.json").read_text())
    text = finished.text
    assert "114 rows were labelled from 66 given labels of 3 classes." in text
    assert f"{record['results']['review']} are marked for review" in text
    assert "of the labels are right, judged by" in text
    assert "2 files could not be used: see runs/a/skipped.csv" in text
    assert "on 6 validation rows the error went from" in text
    assert "saas predict runs/a NEW --out new.csv" in text


def test_a_second_run_reuses_the_decoded_images(finished: Run, saas_here: Here) -> None:
    cache = finished.folder / "runs" / ".saas-cache"
    before = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert len(before) == 2
    done = saas_here("label", "photos", "--out", "runs/again", *QUICK, cwd=finished.folder)
    assert done.code == 0, done.errors
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == before
    for name in ("labels.csv", "posterior.safetensors", "model.safetensors", "skipped.csv"):
        first, again = (finished.folder / "runs" / run / name for run in ("a", "again"))
        assert first.read_bytes() == again.read_bytes()


def test_config_repeats_a_run(finished: Run, saas_here: Here) -> None:
    config = ["--config", "runs/a/run.json"]
    done = saas_here("label", *config, "--out", "runs/same", cwd=finished.folder)
    assert done.code == 0, done.errors
    first, same = (finished.folder / "runs" / run for run in ("a", "same"))
    assert (first / "labels.csv").read_bytes() == (same / "labels.csv").read_bytes()
    one = ["--outer-iterations", "1", "--seed", "3", "--out", "runs/other"]
    done = saas_here("label", *config, *one, cwd=finished.folder)
    assert done.code == 0, done.errors
    record = json.loads((finished.folder / "runs" / "other" / "run.json").read_text())
    assert (record["seed"], record["config"]["outer_iterations"]) == (3, 1)
    assert record["config"]["inner_epochs"] == 4


def test_predict_labels_new_photos(finished: Run, tmp_path: Path, saas_here: Here) -> None:
    truth = write_photos(tmp_path / "new", n=60, labelled=0, seed=9)
    (tmp_path / "new" / "empty.jpg").touch()
    run = str(finished.folder / "runs" / "a")
    done = saas("predict", run, "new", "--out", "new.csv", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "60 rows labelled, 1 file skipped: see new.skipped.csv" in done.stdout
    rows = rows_of(tmp_path / "new.csv")
    assert [row["id"] for row in rows] == sorted(truth)
    assert sum(row["label"] == truth[row["id"]] for row in rows) > 0.95 * len(rows)
    assert {row["source"] for row in rows} == {"inferred"}
    assert rows_of(tmp_path / "new.skipped.csv") == [
        {"id": "empty.jpg", "reason": "the file is empty"}
    ]
    streamed = saas("predict", run, "new", "--out", "-", cwd=tmp_path)
    assert streamed.stdout == (tmp_path / "new.csv").read_text()
    assert "60 rows labelled" in streamed.stderr
    assert saas_here("predict", run, "new", "--out", "table.parquet", cwd=tmp_path).code == 0
    table = pq.read_table(tmp_path / "table.parquet")
    assert table.column_names == list(rows[0])
    assert table["label"].to_pylist() == [row["label"] for row in rows]
    assert table["probability"].to_pylist() == [float(row["probability"]) for row in rows]
    assert not list(tmp_path.glob("**/*.partial"))


def test_the_same_model_in_python(finished: Run, tmp_path: Path, saas_here: Here) -> None:
    write_photos(tmp_path / "new", n=30, labelled=0, seed=9)
    run = finished.folder / "runs" / "a"
    assert saas_here("predict", str(run), "new", "--out", "n.csv", cwd=tmp_path).code == 0
    rows = rows_of(tmp_path / "n.csv")
    model = load(run)
    files = [tmp_path / "new" / row["id"] for row in rows]
    f = model.predict_proba(files)
    assert f.shape == (30, 3)
    np.testing.assert_allclose(f.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(
        f.max(axis=1), [float(row["probability"]) for row in rows], atol=1e-6
    )
    assert model.predict(files) == [row["label"] for row in rows]


def test_predict_writes_over_nothing_unasked(
    finished: Run, tmp_path: Path, saas_here: Here
) -> None:
    write_photos(tmp_path / "new", n=3, labelled=0)
    (tmp_path / "new.csv").write_text("precious")
    run = str(finished.folder / "runs" / "a")
    done = saas("predict", run, "new", "--out", "new.csv", cwd=tmp_path)
    assert (done.returncode, (tmp_path / "new.csv").read_text()) == (1, "precious")
    assert done.stderr == "saas: new.csv exists: choose another --out, or give --overwrite\n"
    (tmp_path / "other.skipped.csv").write_text("precious")
    other = saas_here("predict", run, "new", "--out", "other.csv", cwd=tmp_path)
    assert (other.code, (tmp_path / "other.skipped.csv").read_text()) == (1, "precious")
    told = saas_here("predict", run, "new", "--out", "new.csv", "--overwrite", cwd=tmp_path)
    assert told.code == 0
    assert len(rows_of(tmp_path / "new.csv")) == 3


def test_a_reader_that_has_had_enough_is_no_error_worth_telling(
    finished: Run, tmp_path: Path
) -> None:
    write_photos(tmp_path / "new", n=300, labelled=0)
    command = f"{SAAS} predict {finished.folder}/runs/a new --out - --quiet | head -1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("id,label")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["label", "nowhere"], "nowhere does not exist"),
        (["label", "photos", "--labels", "no.csv"], "no.csv does not exist, or is not"),
        (["label", "photos", "--set", "widht=4"], "there is no setting 'widht': choose one of"),
        (["label", "photos", "--set", "width"], "'width' is not of the form name=value"),
        (["label", "photos", "--set", "width=wide"], "width: input should be a valid integer"),
        (["label", "photos", "--momentum", "2"], "momentum: input should be less than 1, not 2"),
        (["label", "photos", "--network", "vgg"], "unknown network 'vgg'"),
        (["label", "photos", "--augmentation", "mixup"], "unknown augmentation 'mixup'"),
        (["label", "photos", "--preset", "best"], "unknown preset 'best'"),
        (["label", "photos", "--unlabelled", "9"], "only with --keep-labels"),
        (["label", "photos", "--keep-labels", "9"], "needs fully labelled data, but 114 rows"),
        (["label", "photos/red"], "no row has a label"),
        (["label", "one"], "every label is 'red'"),
        (["label", "full"], "nothing to infer: leave some without one, or give --keep-labels"),
        (["label", "few"], "fewer than 2 labels: 'green' (1); label more"),
        (["label", "--config", "photos/notes.txt"], "is not the run.json of a run"),
        (["label", "photos", "--test", "other"], "test data: they have classes that the data have"),
        (["label", "photos", "--test", "x.csv"], "test data: no row has a label"),
        (["label", "photos", "--config", "deep.json"], "is not the run.json of a run"),
        (["predict", "photos", "photos", "--out", "-"], "it is not a finished run"),
        (["predict", "runs/a", "nowhere", "--out", "-"], "nowhere does not exist"),
        (["predict", "runs/a", "photos", "--out", "x.doc"], "must end in .csv or .parquet"),
        (["predict", "runs/a", "x.csv", "--out", "-"], "takes images, but these data are features"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_wrong_is_one_sentence(
    arguments: list[str], sentence: str, wrong: Path, saas_here: Here
) -> None:
    before = sorted(wrong.rglob("*"))
    done = saas_here(*arguments, cwd=wrong)
    assert done.code == 1
    assert done.errors.startswith("saas: ")
    assert sentence in done.errors
    assert done.errors.count("\n") == 1
    after = [path for path in wrong.rglob("*") if ".saas-cache" not in path.parts]
    assert sorted(after) == [path for path in before if ".saas-cache" not in path.parts]


@pytest.fixture(scope="module")
def wrong(finished: Run) -> Path:
    """Data that nothing can be learned from, beside those of the finished run."""
    folder, photos = finished.folder, finished.folder / "photos"
    for name, classes in (("one", ["red"]), ("full", CLASSES), ("few", ["red", "blue"])):
        for kept in classes:
            shutil.copytree(photos / kept, folder / name / kept)
        if name != "full":
            shutil.copytree(photos / "unlabeled", folder / name / "unlabeled")
    (folder / "few" / "green").mkdir()
    shutil.copy(next((photos / "green").iterdir()), folder / "few" / "green")
    for kept in ("red", "purple"):
        shutil.copytree(photos / "red", folder / "other" / kept)
    (folder / "x.csv").write_text("x0,x1\n1,2\n")
    (folder / "deep.json").write_text("[" * 200_000)
    return folder


def test_the_commands_of_the_readme(tmp_path: Path) -> None:
    truth = write_photos(tmp_path / "photos", n=90, labelled=0)
    write_photos(tmp_path / "new_photos", n=9, labelled=0, seed=5)
    table = ["path,label", *(f"{id_},{truth[id_]}" for id_ in sorted(truth)[:30])]
    (tmp_path / "labels.csv").write_text("\n".join(table))
    commands = re.findall(
        r"^\$ saas ((?:label|predict) .+)$", README.read_text(), flags=re.MULTILINE
    )
    assert len(commands) == 2
    for command in commands:
        quick = [*QUICK, "--set", "width=2"] if command.startswith("label") else []
        done = saas(*command.split(), *quick, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    rows = rows_of(tmp_path / "runs" / "photos" / "labels.csv")
    assert [row["source"] for row in rows] == ["given"] * 30 + ["inferred"] * 60
    assert len(rows_of(tmp_path / "new.csv")) == 9


def test_data_must_be_named(tmp_path: Path) -> None:
    done = saas("label", cwd=tmp_path)
    assert done.returncode == 2
    assert "name the data" in done.stderr


@pytest.mark.parametrize(
    "spoil",
    [
        lambda run: (run / "model.json").write_text("{}"),
        lambda run: (run / "model.json").write_text("\udcff".encode("utf-8", "replace").decode()),
        lambda run: change(run, network="os.system"),
        lambda run: change(run, width=10**9),
        lambda run: change(run, in_shape=[3, 10**9, 10**9]),
        lambda run: change(run, classes=["red", "blue"]),
        lambda run: change(
            run,
            in_shape=[3, 9000, 9000],
            image={"height": 9000, "width": 9000, "channels": 3, "white": 255},
        ),
        lambda run: make_whole_numbers(run),
        lambda run: change(run, image={"height": 2, "width": 2, "channels": 3, "white": 255}),
        lambda run: change(run, image={"hight": 2}),
        lambda run: change(run, format=2),
        lambda run: (run / "model.safetensors").write_bytes(b"\x80\x04."),
        lambda run: (run / "model.safetensors").write_bytes(
            (run / "model.safetensors").read_bytes()[:-100]
        ),
    ],
)
def test_a_strangers_run_is_refused_in_one_sentence(
    spoil: Callable[[Path], object], finished: Run, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished.folder / "runs" / "a", run)
    spoil(run)
    with pytest.raises(ValueError, match="holds a model that is broken, or of another version"):
        load(run)


def make_whole_numbers(run: Path) -> None:
    tensors = load_file(run / "model.safetensors")
    whole = {name: value.astype(np.int64) for name, value in tensors.items()}
    save_file(whole, run / "model.safetensors")


def change(run: Path, **values: object) -> None:
    told = json.loads((run / "model.json").read_text())
    (run / "model.json").write_text(json.dumps(told | values))


def test_a_full_disk_leaves_nothing(tmp_path: Path, finished: Run) -> None:
    def no_more_than_a_page() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    write_photos(tmp_path / "new", n=150, labelled=0)
    run = str(finished.folder / "runs" / "a")
    done = subprocess.run(
        [SAAS, "predict", run, "new", "--out", "new.csv"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=no_more_than_a_page,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 1
    assert done.stderr == "saas: [Errno 27] File too large\n"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
