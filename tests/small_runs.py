"""Runs of a second, and files of runs that were never made."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from saas_ssl.labelling.request import Request
from saas_ssl.labelling.session import label_into
from saas_ssl.labelling.task import Task

QUICK = {"inner_epochs": 2, "outer_iterations": 1, "classifier_epochs": 2, "width": 4}

COLUMNS = ["id", "label", "probability", "source", "decision", "runner_up"]
COLUMNS += ["runner_up_probability", "reason"]


def write_features(path: Path, names: str, n: int = 60, labelled: int = 30, seed: int = 0) -> None:
    """Class "yes" where the feature a is positive; b and c are large and mean nothing."""
    rng = np.random.default_rng(seed)
    lines = [f"id,label,{','.join(names)}"]
    for row in range(n):
        values = {"a": rng.choice([-1, 1]) * (1 + rng.random()), "b": 50.0, "c": -70.0}
        values |= {name: 10 * rng.random() for name in "bc"}
        label = ("yes" if values["a"] > 0 else "no") if row < labelled else ""
        lines.append(f"r{row},{label}," + ",".join(f"{values[name]:.4f}" for name in names))
    path.write_text("\n".join(lines))


def label(out: Path, request: Request, console: Console | None = None, **given: object) -> None:
    task = Task(out=out, request=request, given=QUICK | given)
    label_into(task, console or Console(quiet=True))


def write_run(
    run: Path,
    data: Path | str,
    labels: dict[str, str],
    classes: Sequence[str],
    in_shape: Sequence[int] = (1, 8, 8),
    given_ids: Sequence[str] = (),
    review: Sequence[str] = (),
) -> Path:
    """The files of a finished run that an export reads, for data of any kind."""
    run.mkdir()
    record = {
        "request": {"data": str(data)},
        "data": {"classes": list(classes), "in_shape": list(in_shape)},
        "results": {},
    }
    (run / "run.json").write_text(json.dumps(record))
    with (run / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for id_, label in labels.items():
            source = "given" if id_ in given_ids else "inferred"
            decision = "review" if id_ in review else "accept"
            writer.writerow([id_, label, 0.9, source, decision, classes[0], 0.05, ""])
    return run
