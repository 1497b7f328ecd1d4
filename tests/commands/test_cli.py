"""The command as a user calls it: real processes, real files."""

import csv
import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from command import QUICK, README, Here, saas
from saas_ssl import generator_at, hold_out, keep_labels, read_digits


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One real run of the command in the README."""
    folder = tmp_path_factory.mktemp("demo")
    (command,) = re.findall(r"^\$ saas (demo .+)$", README.read_text(), flags=re.MULTILINE)
    done = saas(*command.split(), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder, done.stdout


def test_demo_tells_its_progress_and_results(finished: tuple[Path, str]) -> None:
    _, text = finished
    outers = [line for line in text.splitlines() if line.startswith("outer")]
    assert len(outers) == 4
    for line in outers:
        for word in ("cumulative loss", "changed", "images/s", "s left"):
            assert word in line
    for phase in ("supervised baseline", "phase one: labels", "phase two: classifier"):
        assert phase in text.splitlines()
    assert "1,297 rows were labelled from 50 given labels of 10 classes." in text
    assert "Error on the unlabelled rows: " in text
    assert "Test error: " in text
    assert "runs/digits/labels.csv" in text


def test_demo_writes_its_run_and_beats_the_baseline(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    assert [path.name for path in folder.iterdir()] == ["runs"]
    names = sorted(path.name for path in (folder / "runs" / "digits").iterdir())
    assert names == [
        "labels.csv",
        "metrics.jsonl",
        "model.json",
        "model.safetensors",
        "posterior.safetensors",
        "report.html",
        "run.json",
    ]
    record = json.loads((folder / "runs" / "digits" / "run.json").read_text())
    assert (record["data"]["labelled"], record["data"]["unlabelled"]) == (50, 1297)
    assert record["data"]["test"] == 450
    assert record["seed"] == 1
    lines = (folder / "runs" / "digits" / "labels.csv").read_text().splitlines()
    assert len(lines) == 1 + 50 + 1297
    kept = {row["id"] for row in csv.DictReader(lines) if row["source"] == "given"}
    rest, _ = hold_out(read_digits(), 450, generator_at(0, "test"))
    expected = keep_labels(rest, 50, generator_at(1, "kept labels"))
    assert kept == {expected.ids[row] for row in expected.labelled_rows.tolist()}
    results = record["results"]
    assert results["saas"]["test_error"] < results["supervised"]["test_error"]


def test_an_existing_run_is_refused_in_one_sentence(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    before = (folder / "runs" / "digits" / "run.json").read_text()
    done = saas("demo", "--out", "runs/digits", cwd=folder)
    assert done.returncode == 1
    assert done.stderr == "saas: runs/digits exists: choose another --out, or give --overwrite\n"
    assert done.stdout == ""
    assert (folder / "runs" / "digits" / "run.json").read_text() == before


def test_overwrite_never_deletes_what_is_no_run(tmp_path: Path, saas_here: Here) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("precious")
    done = saas_here("demo", "--out", "photos", "--overwrite", cwd=tmp_path)
    assert done.code == 1
    assert "not a run directory" in done.errors
    assert (tmp_path / "photos" / "cat.jpg").read_text() == "precious"


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path, saas_here: Here) -> None:
    (tmp_path / "file").write_text("")
    done = saas_here("demo", "--out", "file/run", cwd=tmp_path)
    assert done.code == 1
    assert done.errors.startswith("saas: ")
    assert done.errors.count("\n") == 1


@pytest.mark.parametrize("arguments", [["demo", "--seed", "x"], ["demo", "--sed", "1"], ["dmo"]])
def test_wrong_use_exits_with_2(arguments: list[str], tmp_path: Path) -> None:
    done = saas(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


SLOW_TO_IMPORT = {
    *("torch", "numpy", "scipy", "sklearn", "PIL", "matplotlib", "joblib", "safetensors", "jinja2"),
    *("pandas", "pyarrow", "starlette", "uvicorn", "onnx", "tensorboard"),
}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["label", "--help"]])
def test_help_comes_at_once_because_it_imports_little(arguments: list[str]) -> None:
    code = (
        "import sys; from saas_ssl.commands.app import app\n"
        f"try: app({arguments}, prog_name='saas')\n"
        f"finally: print(sorted({SLOW_TO_IMPORT} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert "label" in done.stdout or "--version" in arguments


def test_a_run_imports_nothing_that_it_could_do_without(tmp_path: Path) -> None:
    """Each of these takes a second or half a one, before the first step or after the last."""
    run = ["label", "digits:train", "--keep-labels", "20", "--unlabelled", "60", *QUICK]
    code = (
        "import sys; from saas_ssl.commands.app import app\n"
        f"try: app({[*run, '--out', 'run', '--quiet']})\n"
        "finally: print(sorted({'sklearn', 'scipy.stats', 'torch._dynamo'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
    assert (tmp_path / "run" / "labels.csv").exists()


def test_version_and_help(tmp_path: Path) -> None:
    done = saas("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"saas-ssl {version('saas-ssl')}\n")
    as_module = [sys.executable, "-m", "saas_ssl", "--version"]
    assert subprocess.run(as_module, capture_output=True, text=True).stdout == done.stdout
    assert "demo" in saas("--help", cwd=tmp_path).stdout


@pytest.mark.slow
def test_demo_over_five_seeds() -> None:
    """Its mean test error is at most 0.6 x the supervised baseline's."""
    script = Path(__file__).parents[2] / "benchmarks" / "accuracy.py"
    done = subprocess.run(
        [sys.executable, str(script), "--seeds", "5", "demo"],
        capture_output=True,
        text=True,
        check=True,
        timeout=1800,
    )
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["seeds"] == 5
    assert summary["ratio of test errors"] <= 0.6
