import json
import os
from pathlib import Path
from typing import Any

import pytest

from records import TRUST
from saas_ssl.progress.status import status

NOW = 1_790_000_000.0  # 2026-09-21T14:13:20 UTC
RECORD: dict[str, Any] = {
    "results": None,
    "scrutiny": {"accept": 0.95, "label_folds": 5},
    "config": {
        "outer_iterations": 10,
        "inner_epochs": 4,
        "classifier_epochs": 5,
        "classifier_schedule": "triangular",
    },
    "data": {
        "labelled": 90,
        "unlabelled": 12_345,
        "validation": 10,
        "skipped": 0,
        "classes": ["a", "b", "c"],
    },
    "seed": 7,
    "budget": None,
    "plan": {"image_passes": {"supervised": 5_000, "one": 40_000, "two": 5_000}, "seconds": 480.0},
    "started": "2026-09-21T12:43:20+00:00",
}
RESULTS = {
    "supervised": {"validation_error": 0.30, "test_error": 0.31},
    "saas": {"validation_error": 0.20, "test_error": 0.21, "unlabelled_error": 0.19},
    "inner": {"error": 0.1, "supervised_error": 0.1, "rows": 100},
    "validation": {"rows": 200, "mended": 24, "broken": 4},
    "accepted": 12_000,
    "review": 345,
    "outliers": 0,
    "trust": TRUST,
}
HALVING = {"supervised": 5_000, "one": 40_000, "two": None}


def supervised(n: int) -> dict[str, Any]:
    cost = {"image_passes": 1_000 * (n + 1), "seconds": 10.0 * (n + 1)}
    return {"phase": "supervised", "epoch": n, "loss": 0.5, "rate": 0.1, "score": -0.5, **cost}


def outer(m: int, changed: float = 0.125) -> dict[str, Any]:
    return {
        "phase": "one",
        "outer": m,
        "cumulative_loss": 2.0 - 0.25 * m,
        "changed": changed,
        "unlabelled_accuracy": None,
        "inner_error": 0.1,
        "image_passes": 4_000 * (m + 1),
        "seconds": 40.0 * (m + 1),
    }


def classifier(n: int) -> dict[str, Any]:
    cost = {"image_passes": 40_000 + 1_000 * (n + 1), "seconds": 400.0 + 10.0 * (n + 1)}
    return {"phase": "two", "epoch": n, "loss": 0.25, "rate": 0.1, "score": -0.25, **cost}


BASELINE = [supervised(n) for n in range(5)]
PHASE_ONE = [outer(m) for m in range(10)]


def a_run(
    run: Path, metrics: list[dict[str, Any]] | None = None, tail: str = "", **record: Any
) -> Path:
    """A run directory; its metrics were written half a minute ago."""
    run.mkdir(exist_ok=True)
    (run / "run.json").write_text(json.dumps({**RECORD, **record}))
    if metrics is not None:
        text = "".join(json.dumps(line) + "\n" for line in metrics)
        (run / "metrics.jsonl").write_text(text + tail)
        os.utime(run / "metrics.jsonl", (NOW - 30, NOW - 30))
    return run


def a_checkpoint(run: Path, name: str, text: str, age: float) -> None:
    (run / "checkpoint").mkdir(exist_ok=True)
    file = run / "checkpoint" / name
    file.write_text(text)
    os.utime(file, (NOW - age, NOW - age))


def test_a_run_in_phase_one(tmp_path: Path) -> None:
    a_run(tmp_path, [*BASELINE, *PHASE_ONE[:3]])
    a_checkpoint(tmp_path, "9.json", '{"stage": "one", "m": 1, "t": 3}', age=400)
    a_checkpoint(tmp_path, "10.json", '{"stage": "one", "m": 3, "t": 1200}', age=20)
    assert status(tmp_path, running=True, now=NOW) == [
        f"{tmp_path}: running, started 90 min ago.",
        "90 labelled and 12,345 unlabelled rows, 3 classes, seed 7.",
        "Phase one: labels: 3 of 10 outer iterations done; the last changed 12.5% of the labels, "
        "cumulative loss 1.500.",
        "Cumulative loss (the lower the faster learnt): █▅▁",
        # 33,000 passes at 100 a second take 330 s, of which 30 went by.
        "17,000 of 50,000 image passes done (34%), 100 a second; about 5 min left.",
        "Last measured 30 s ago.",
        "Last checkpoint 20 s ago, 1,200 steps into an inner loop.",
    ]


def test_a_stopped_run_says_how_to_continue(tmp_path: Path) -> None:
    run = a_run(tmp_path / "my run", BASELINE[:2], budget=7_200.0)
    assert status(run, running=False, now=NOW + 570) == [
        f"{run}: stopped; continue with: saas label --out '{run}' --resume",
        "90 labelled and 12,345 unlabelled rows, 3 classes, seed 7, time budget 2.0 h.",
        "Supervised baseline: 2 of 5 epochs done, loss 0.500.",
        # 48,000 passes at 100 a second; nothing was done since.
        "2,000 of 50,000 image passes done (4%), 100 a second; about 8 min left.",
        "Last measured 10 min ago.",
    ]


def test_a_run_in_phase_two(tmp_path: Path) -> None:
    a_run(tmp_path, [*BASELINE, *PHASE_ONE, classifier(0), classifier(1)])
    lines = status(tmp_path, running=True, now=NOW)
    assert "Phase two: classifier: 2 of 5 epochs done, loss 0.250." in lines
    assert "Cumulative loss (the lower the faster learnt): █▇▆▆▅▄▃▃▂▁" in lines
    assert "47,000 of 50,000 image passes done (94%), 100 a second; about 0 s left." in lines


def test_nothing_is_measured_yet(tmp_path: Path) -> None:
    a_run(tmp_path)
    lines = status(tmp_path, running=True, now=NOW)
    assert lines[2:] == [
        "Supervised baseline: no epoch done yet.",
        "About 8 min in all, as forecast.",
    ]
    a_run(tmp_path, [], tail='{"phase": "superv', plan={**RECORD["plan"], "seconds": None})
    assert status(tmp_path, running=True, now=NOW)[2:] == lines[2:3]


def test_a_half_written_line_is_not_counted(tmp_path: Path) -> None:
    whole = status(a_run(tmp_path, BASELINE[:2]), running=True, now=NOW)
    for tail in ('{"phase": "supervised", "epoch": 2, "lo', "{", '{"phase": "supervised"}', "é"):
        assert status(a_run(tmp_path, BASELINE[:2], tail), running=True, now=NOW) == whole


def test_what_is_done_again_counts_once(tmp_path: Path) -> None:
    again = [*BASELINE, *PHASE_ONE[:5], outer(2, changed=0.5)]
    lines = status(a_run(tmp_path, again), running=True, now=NOW)
    assert lines[2].startswith("Phase one: labels: 3 of 10 outer iterations done; the last changed")
    assert "50.0%" in lines[2]
    assert lines[3].endswith(": █▅▁")
    assert lines[4].startswith("17,000 of 50,000")


def test_a_checkpoint_tells_of_a_part_without_metrics(tmp_path: Path) -> None:
    a_run(tmp_path, BASELINE[:4])  # the baseline was stopped early
    a_checkpoint(tmp_path, "step-12.json", '{"stage": "one", "t": 1}', age=5)
    a_checkpoint(tmp_path, "step-13.json", '{"stage": "on', age=1)
    lines = status(tmp_path, running=True, now=NOW)
    assert "Phase one: labels: 0 of 10 outer iterations done." in lines
    assert lines[-1] == "Last checkpoint 5 s ago, 1 step into an inner loop."
    assert "4,000 of 49,000 image passes done (8%), 100 a second; about 7 min left." in lines
    a_checkpoint(tmp_path, "step-14.json", '{"stage": "two", "t": 2}', age=1)
    lines = status(tmp_path, running=True, now=NOW)
    assert "Phase two: classifier: no epoch done yet." in lines
    assert lines[-1] == "Last checkpoint 1 s ago, 2 steps into an epoch."


def test_a_run_of_unknown_length(tmp_path: Path) -> None:
    plan = {"image_passes": HALVING, "seconds": None}
    a_run(tmp_path, [*BASELINE, *PHASE_ONE[:3]], plan=plan)
    assert (
        "17,000 image passes done, 100 a second; more than 4 min left."
        in status(tmp_path, running=True, now=NOW)  # 280 s for phase one, 30 of which went by
    )
    a_run(tmp_path, [*BASELINE, *PHASE_ONE, classifier(0)], plan=plan)
    lines = status(tmp_path, running=True, now=NOW)
    assert "Phase two: classifier: 1 epoch done, loss 0.250." in lines
    assert "46,000 image passes done, 100 a second." in lines


def test_times_without_a_zone_are_utc(tmp_path: Path) -> None:
    for started in ("2026-09-21T14:12:20", "2026-09-21T14:12:20Z", "2026-09-21T16:12:20+02:00"):
        lines = status(a_run(tmp_path, started=started), running=True, now=NOW)
        assert lines[0].endswith("started 60 s ago.")


@pytest.mark.parametrize("running", [True, False])
def test_a_finished_run(tmp_path: Path, running: bool) -> None:
    lines = status(a_run(tmp_path, PHASE_ONE, results=RESULTS), running, now=NOW)
    assert lines[0] == f"{tmp_path}: finished."
    text = "\n".join(lines)
    assert "Test error: 21.00%; supervised baseline 31.00%." in text
    assert "Error on the unlabelled rows: 19.00%." in text
    assert f"Labels: {tmp_path}/labels.csv." in text
    assert "--resume" not in text


def test_other_directories_are_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ValueError, match=f"^{place} is not a run directory$"):
            status(place, running=False, now=NOW)


@pytest.mark.parametrize(
    "text",
    ["", '{"results": nu', "[]", "1", '"text"', "null", "{}", '{"results": null}',
     '{"results": {}}', '{"results": 1}', '{"results": null, "config": 1}', "\x80"],
)  # fmt: skip
def test_a_broken_record_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"run\.json is broken: it is not what saas label writes$"):
        status(tmp_path, running=False, now=NOW)
