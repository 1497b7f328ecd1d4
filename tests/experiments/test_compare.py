"""`saas compare`: the same labels and budget for all, resumable, and honest about chance."""

import csv
import json
import os
import signal
import statistics
import time
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from scipy.stats import ttest_rel
from typer.testing import CliRunner

from processes import ended, run_to_end, started, wait_until
from saas_ssl.commands.app import app
from saas_ssl.experiments.cell import Conditions
from saas_ssl.experiments.compare import budget_of, compare_into, given_of, methods_of
from saas_ssl.experiments.table import as_markdown, table
from saas_ssl.labelling.request import Request
from saas_ssl.methods import METHODS

DIGITS = Request(data="digits:train", keep_labels=50, unlabelled=300, test="digits:test")
QUICK = Conditions(request=DIGITS, width=4, budget={"passes": 1500.0})


def compare(
    out: Path,
    methods: list[str],
    seeds: range = range(2),
    conditions: Conditions = QUICK,
    **options: Any,
) -> tuple[dict[str, Any], str]:
    """Results and what was printed."""
    text = StringIO()
    workers = options.pop("workers", 1)
    console = Console(file=text, markup=False, emoji=False, highlight=False, soft_wrap=True)
    compare_into(conditions, methods, seeds, out, workers, console, **options)
    return json.loads((out / "results.json").read_text()), text.getvalue()


def test_tables_files_and_plot(tmp_path: Path) -> None:
    out = tmp_path / "out"
    results, text = compare(out, ["supervised", "saas", "pi_model"])
    cells = results["cells"]
    assert [(cell["seed"], cell["method"]) for cell in cells] == [
        (seed, method) for seed in (0, 1) for method in ("pi_model", "saas", "supervised")
    ]
    for cell in cells:  # all methods see the labels of their seed, and spend the same
        same_seed = [other for other in cells if other["seed"] == cell["seed"]]
        assert all(cell["labels"] == other["labels"] for other in same_seed)
        own = json.loads((out / "cells" / f"{cell['method']}-{cell['seed']}.json").read_text())
        assert len(own["labelled_rows"]) == 50
        assert len(own["history"]) > 1
        assert cell["passes"] == pytest.approx(1500, rel=0.1)
        assert 0 <= cell["test_error"] <= 1
        assert 0 <= cell["unlabelled_error"] <= 1
    assert cells[0]["labels"] != cells[3]["labels"]
    rows = list(csv.DictReader(StringIO((out / "results.csv").read_text())))
    assert [float(row["test_error"]) for row in rows] == [cell["test_error"] for cell in cells]
    own = [cell["test_error"] for cell in cells if cell["method"] == "saas"]
    (row,) = [row for row in results["test_error"] if row["method"] == "saas"]
    assert row["mean"] == pytest.approx(statistics.mean(own))
    assert row["std"] == pytest.approx(statistics.stdev(own))
    assert f"| saas | {100 * row['mean']:.2f} ± {100 * row['std']:.2f} |" in text
    assert (out / "comparison.md").read_text() in text
    with Image.open(out / "comparison.png") as plot:
        plot.load()
        assert plot.width > 300
    assert results["conditions"]["budget"] == {"passes": 1500.0}
    assert {"cores", "threads"} <= set(results["hardware"])


def test_what_is_there_is_not_repeated_and_more_can_be_added(tmp_path: Path) -> None:
    out = tmp_path / "out"
    compare(out, ["supervised"], range(1))
    first = out / "cells" / "supervised-0.json"
    before = first.stat().st_mtime_ns, first.read_bytes()
    results, text = compare(out, ["supervised", "pseudo_label"], range(2))
    assert (first.stat().st_mtime_ns, first.read_bytes()) == before
    assert "1 cell" in text
    assert len(results["cells"]) == 4
    # A cell that was cut off is made again.
    whole = json.loads((out / "cells" / "pseudo_label-1.json").read_text())
    (out / "cells" / "pseudo_label-1.json").write_text('{"method": "pse')
    compare(out, ["pseudo_label"], range(2))
    again = json.loads((out / "cells" / "pseudo_label-1.json").read_text())
    del whole["seconds"], again["seconds"]
    assert again == whole


def test_another_comparison_is_refused_and_loses_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    compare(out, ["supervised"], range(1))
    cell = (out / "cells" / "supervised-0.json").read_bytes()
    other = QUICK.model_copy(update={"budget": {"passes": 1000.0}})
    with pytest.raises(ValueError, match="another budget"):
        compare(out, ["supervised"], range(1), other)
    slower = QUICK.model_copy(update={"given": {"supervised": {"lr": 0.01}}})
    with pytest.raises(ValueError, match="another given"):
        compare(out, ["supervised"], range(1), slower)
    assert (out / "cells" / "supervised-0.json").read_bytes() == cell
    results, _ = compare(out, ["supervised"], range(1), other, overwrite=True)
    assert results["cells"][0]["passes"] == 1000


def test_data_that_changed_are_refused(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32), np.arange(60) % 2
    conditions = Conditions(
        request=Request(data=str(tmp_path / "x.npz"), keep_labels=10), budget={"passes": 500.0}
    )
    np.savez(tmp_path / "x.npz", x=x, y=y)
    compare(tmp_path / "out", ["supervised"], range(1), conditions)
    compare(tmp_path / "out", ["supervised"], range(1, 3), conditions)  # another seed is no change
    np.savez(tmp_path / "x.npz", x=x + 1, y=y)
    with pytest.raises(ValueError, match="another fingerprint"):
        compare(tmp_path / "out", ["supervised"], range(1), conditions)


def test_cells_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    """Such as those of an earlier version whose preset was another."""
    out = tmp_path / "out"
    compare(out, ["supervised"], range(1))
    path = out / "cells" / "supervised-0.json"
    cell = json.loads(path.read_text())
    cell["settings"]["lr"] = 0.7
    path.write_text(json.dumps(cell))
    with pytest.raises(ValueError, match=r"made with lr = 0\.7"):
        compare(out, ["supervised"], range(1))


def test_foreign_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match=r"thesis\.tex"):
            compare(tmp_path, ["supervised"], range(1), overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_features_and_a_budget_of_time(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    y = np.repeat([0, 1], 60)
    x = draws.normal(size=(120, 5)) + 3 * y[:, None]
    np.savez(tmp_path / "features.npz", x=x.astype(np.float32), y=y)
    request = Request(data=str(tmp_path / "features.npz"), keep_labels=10)
    conditions = Conditions(request=request, budget={"seconds": 1.0})
    results, text = compare(tmp_path / "out", ["vat", "fixmatch"], range(1), conditions)
    for cell in results["cells"]:
        assert cell["test_error"] is None
        assert cell["unlabelled_error"] < 0.2
        assert cell["seconds"] >= 1.0
    assert "error on the unlabelled rows" in text
    assert "test error" not in text


def test_nothing_to_measure_by_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    np.savez(tmp_path / "some.npz", x=np.eye(6, 4, dtype=np.float32), y=[0, 0, 1, 1, -1, -1])
    conditions = Conditions(
        request=Request(data=str(tmp_path / "some.npz")), budget={"passes": 100.0}
    )
    with pytest.raises(ValueError, match="nothing to measure by"):
        compare(tmp_path / "out", ["supervised"], range(1), conditions)
    assert not (tmp_path / "out").exists()


def test_a_cell_that_fails_does_not_keep_others_from_ending(tmp_path: Path) -> None:
    given = {"supervised": {"lr": 1e30}}
    broken = QUICK.model_copy(update={"given": given})
    with pytest.raises(ValueError, match=r"2 cells failed, the first: supervised, seed 0: .*lr"):
        compare(tmp_path / "out", ["supervised", "pseudo_label"], range(2), broken)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [cell["method"] for cell in results["cells"]] == ["pseudo_label"] * 2
    # Nothing is there that another comparison could be mixed with.
    with pytest.raises(ValueError, match="too short"):
        compare(
            tmp_path / "short",
            ["saas"],
            range(1),
            QUICK.model_copy(update={"budget": {"passes": 10.0}}),
        )
    compare(tmp_path / "short", ["supervised"], range(1))


COMMAND = [
    *("compare", "digits:train", "--keep-labels", "50", "--unlabelled", "300"),
    *("--test", "digits:test", "--width", "4", "--budget", "4k", "--seeds", "2"),
    *("--methods", "supervised,fixmatch,saas", "--workers", "2", "--out", "out"),
]


def without_seconds(out: Path) -> dict[str, Mapping[str, Any]]:
    cells = {path.name: json.loads(path.read_text()) for path in (out / "cells").glob("*.json")}
    return {
        name: {key: value for key, value in cell.items() if key != "seconds"}
        for name, cell in cells.items()
    }


def processes_of(session: int) -> list[int]:
    """Those that are left of a session, zombies aside."""
    left = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                left.append(int(entry.name))
    return left


def stopped(tmp_path: Path, by: int) -> tuple[int, str]:
    """(Exit code, what was said) of the command when it gets a signal after its second cell."""
    cells = tmp_path / "out" / "cells"
    with started(*COMMAND, cwd=tmp_path) as process:
        wait_until(lambda: len(list(cells.glob("*.json"))) >= 2, process)
        os.kill(process.pid, by)
        process.wait(60)
        deadline = time.monotonic() + 30
        while processes_of(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert processes_of(process.pid) == []
        assert process.stdout is not None
        return process.returncode, process.stdout.read()


def test_killed_and_restarted_it_does_only_what_is_missing(tmp_path: Path) -> None:
    assert stopped(tmp_path, signal.SIGKILL)[0] == -signal.SIGKILL
    out, whole = tmp_path / "out", tmp_path / "whole"
    there = {path: path.stat().st_mtime_ns for path in (out / "cells").glob("*.json")}
    assert 2 <= len(there) < 6
    methods = ["supervised", "fixmatch", "saas"]
    same = QUICK.model_copy(update={"budget": {"passes": 4000.0}, "device": "auto"})
    _, text = compare(out, methods, range(2), same)
    assert f"{len(there)} cells" in text
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in there.items())
    compare(whole, methods, range(2), same)  # in one process, and never interrupted
    assert len(without_seconds(whole)) == 6
    assert without_seconds(whole) == without_seconds(out)


def test_interrupted_it_says_how_to_go_on(tmp_path: Path) -> None:
    code, text = stopped(tmp_path, signal.SIGINT)
    assert code == 130
    assert "Stopped. The same command goes on with what is missing." in text


def test_a_worker_that_dies_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with started(*COMMAND, cwd=tmp_path) as process:
        cells = tmp_path / "out" / "cells"
        wait_until(lambda: len(list(cells.glob("*.json"))) >= 1, process)
        workers = [
            pid
            for pid in processes_of(process.pid)
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(workers[0], signal.SIGKILL)
        done = ended(process)
    assert done.code == 1
    assert done.errors.startswith("saas: a worker has ended unexpectedly")
    assert done.errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["digits", "--methods", "vat,magic"], "unknown method 'magic'"),
        (["digits", "--methods", ","], "name the methods"),
        (["digits", "--budget", "soon"], "neither a number of image passes"),
        (["digits", "--budget", "0"], "neither a number of image passes"),
        (["digits", "--keep-labels", "50", "--preset", "best"], "unknown preset 'best'"),
        (["digits", "--keep-labels", "50", "--network", "vgg"], "unknown network 'vgg'"),
        (["digits", "--set", "colour=1"], "none of these methods has a setting 'colour'"),
        (["digits", "--keep-labels", "50", "--set", "vat.lr=-1"], "vat: lr: "),
        (["digits", "--keep-labels", "50", "--set", "vat.alpha=1"], "vat has no setting 'alpha'"),
        (["digits", "--keep-labels", "50", "--set", "saas.width=2"], "saas: width cannot be set"),
        (["digits", "--keep-labels", "50", "--set", "saas_vat.update=joint"], "for saas only"),
        (["digits", "--keep-labels", "50", "--budget", "2k", "--methods", "saas"], "too short"),
        (["nowhere"], "nowhere"),
    ],
)
def test_wrong_use_is_told(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    done = CliRunner().invoke(app, ["compare", *arguments, "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, ValueError)
    assert complaint in str(done.exception)
    assert "\n" not in str(done.exception)


def test_wrong_use_is_one_sentence_on_stderr(tmp_path: Path) -> None:
    done = run_to_end("compare", "digits", "--methods", "magic", cwd=tmp_path)
    assert done.code == 1
    assert done.errors.startswith("saas: unknown method 'magic'")
    assert done.errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_words_of_the_command_line() -> None:
    assert budget_of("150k") == {"passes": 150_000.0}
    assert budget_of("1M passes") == {"passes": 1_000_000.0}
    assert budget_of("300000") == {"passes": 300_000.0}
    assert budget_of("1m") == {"seconds": 60.0}
    assert budget_of("90s") == {"seconds": 90.0}
    assert methods_of("all") == list(METHODS)
    assert methods_of("vat, saas,vat") == ["vat", "saas"]
    assert given_of(["vat.lr=0.2", "lr=0.1"], ["vat", "saas", "pi_model"]) == {
        "vat": {"lr": 0.1},
        "pi_model": {"lr": 0.1},
    }


def test_differences_are_paired_over_the_seeds_that_both_have() -> None:
    cells: list[dict[str, Any]] = [
        {"method": method, "seed": seed, "test_error": error, "unlabelled_error": None}
        for method, seed, error in [
            *(("saas", 0, 0.1), ("saas", 1, 0.2), ("saas", 2, 0.3)),
            *(("vat", 0, 0.2), ("vat", 2, 0.5)),
        ]
    ]
    ours, other = table(cells, "test_error")
    assert (ours.method, ours.runs, ours.difference, ours.p) == ("saas", 3, None, None)
    assert ours.mean == pytest.approx(0.2)
    assert ours.std == pytest.approx(0.1)
    assert other.difference == pytest.approx(0.15)
    assert other.p == pytest.approx(float(ttest_rel([0.2, 0.5], [0.1, 0.3]).pvalue))
    assert table(cells, "unlabelled_error") == []
    assert "| vat | 35.00 ± 21.21 | 2 | +15.00 |" in as_markdown(cells)


@pytest.mark.slow
def test_every_method_beats_the_supervised_one_on_digits(tmp_path: Path) -> None:
    """Under the conditions of docs/comparison.md, two of its five labelled sets."""
    request = DIGITS.model_copy(update={"unlabelled": None})
    conditions = Conditions(request=request, budget={"passes": 150_000.0})
    results, _ = compare(tmp_path / "out", list(METHODS), conditions=conditions, workers=2)
    errors = {row["method"]: row["mean"] for row in results["test_error"]}
    supervised = errors.pop("supervised")
    assert len(errors) == len(METHODS) - 1
    assert {name: error for name, error in errors.items() if error >= supervised} == {}
