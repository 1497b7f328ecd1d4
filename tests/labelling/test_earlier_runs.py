"""What the version before has written is read, and what it had begun goes on.

`tests/earlier` was written by commit 9691b31, whose modules lay side by side, in an empty folder:
digits 0 to 2 of scikit-learn (90 images of 8x8, 30 of them labelled), and from them

    saas label digits.npz --test truth.npz --set width=4 --inner-epochs 4 --outer-iterations 4 \
        --set classifier_epochs=6 --seed 1 --out finished
    saas label ... --out half --checkpoint-every 1s     (SIGTERM after two outer iterations)

and `estimator`, a SaaSClassifier(random_state=0, width=8, outer_iterations=2) of the same rows
with the labels nought, one and two.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from command import rows_of, saas
from saas_ssl import SaaSClassifier, load
from saas_ssl.commands.app import app
from saas_ssl.runs.record import package_versions, versions

EARLIER = Path(__file__).parents[1] / "earlier"
ROWS, LABELLED = 90, 30
NAMES = np.array(["nought", "one", "two"])


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A copy, as if the packages of this machine had written it: others are refused."""
    shutil.copytree(EARLIER, tmp_path, dirs_exist_ok=True)
    rewrite(tmp_path / "half" / "run.json", versions=versions())
    (checkpoint,) = (tmp_path / "half" / "checkpoint").glob("*.json")
    identity = json.loads(checkpoint.read_text())["identity"]
    rewrite(checkpoint, identity=identity | package_versions())
    return tmp_path


def rewrite(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def truth() -> np.ndarray:
    found: np.ndarray = np.load(EARLIER / "truth.npz")["y"]
    return found


def test_a_run_that_was_begun_goes_on(here: Path) -> None:
    before = (here / "half" / "metrics.jsonl").read_bytes()
    assert before.count(b'"one"') == 2
    done = saas("label", "--out", "half", "--resume", cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    after = (here / "half" / "metrics.jsonl").read_bytes()
    assert after.startswith(before)  # nothing is done again
    assert after.count(b'"one"') == 4
    # It ends as the run that was never stopped, but for what another processor rounds otherwise.
    ended, whole = (rows_of(here / name / "labels.csv") for name in ("half", "finished"))
    assert [row["id"] for row in ended] == [row["id"] for row in whole]
    same = [a["label"] == b["label"] for a, b in zip(ended, whole, strict=True)]
    assert sum(same) >= 0.95 * ROWS
    left = {name: {path.name for path in (here / name).iterdir()} for name in ("half", "finished")}
    assert left["half"] == left["finished"] | {"report.html"}  # which nothing reads


def test_a_finished_run_is_read_by_every_command(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    for command in (
        ["status", "finished"],
        ["predict", "finished", "digits.npz", "--out", "new.csv"],
        ["review", "finished", "--export", "corrected.csv"],
        ["export", "finished", "--format", "cleanlab", "--out", "cleanlab"],
        ["label", "--config", "finished/run.json", "--out", "again"],
        ["label", "--out", "finished", "--resume"],
    ):
        done = CliRunner().invoke(app, command)
        assert (done.exit_code, done.exception) == (0, None), command
    assert done.output == "finished is finished already.\n"
    given = [row for row in rows_of(here / "corrected.csv") if row["label"]]
    assert len(given) == LABELLED
    records = [json.loads((here / n / "run.json").read_text()) for n in ("finished", "again")]
    assert records[0]["config"] == records[1]["config"]
    predicted = [row["label"] for row in rows_of(here / "new.csv")]
    assert predicted == load(here / "finished").predict(np.load(here / "digits.npz")["x"])
    error = json.loads((here / "finished" / "run.json").read_text())["results"]["saas"][
        "test_error"
    ]
    assert np.mean(np.array(predicted, int) != truth()) == pytest.approx(error, abs=0.03)


def test_a_saved_estimator_is_loaded(here: Path) -> None:
    model = SaaSClassifier.load(here / "estimator")
    assert model.get_params()["width"] == 8
    assert model.n_iter_ == 2
    assert model.classes_.tolist() == NAMES.tolist()
    X = np.load(here / "digits.npz")["x"].reshape(ROWS, -1).astype(np.float32)
    for labels in (model.predict(X), model.transduction_):
        assert np.mean(labels == NAMES[truth()]) > 0.9
    model.save(here / "again")
    assert (here / "again" / "model.safetensors").read_bytes() == (
        here / "estimator" / "model.safetensors"
    ).read_bytes()
