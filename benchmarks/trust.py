"""Are probabilities right as often as they say? Are wrong labels and strange rows found?

    python benchmarks/trust.py --seeds 10 calibration idx:DIR --keep-labels 100 --unlabelled 10000
    python benchmarks/trust.py --seeds 5 wrong-labels idx:DIR --keep-labels 100 --unlabelled 10000
    python benchmarks/trust.py --seeds 3 outliers idx:DIR --keep-labels 80 --unlabelled 10000
    python benchmarks/trust.py --seeds 3 imbalance idx:DIR --keep-labels 100 --unlabelled 10000 \
        --test idx:DIR:test

Each is `saas label` as a user calls it, on data whose other labels are hidden from it. One JSON
line per seed. `--options='--label-folds 0'` and the like are for `saas label`.
"""

import argparse
import csv
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score

from saas_ssl import generator_at, keep_labels, prepare, read, train_supervised
from saas_ssl.algorithm.partially_labelled import SET_ASIDE, UNLABELLED, PartiallyLabelled
from saas_ssl.training.choosing import chosen_settings
from saas_ssl.training.outputs import predict
from saas_ssl.trust.calibration import reliability

WRONG = 0.1  # share of given labels that are replaced
KNOWN = 8  # classes, of ten
IMBALANCE = 10  # the largest class against the smallest

Row = dict[str, Any]


def saas_label(folder: Path, data: str, seed: int, options: Sequence[str]) -> Path:
    """The run directory of `saas label`."""
    out = folder / f"run{seed}"
    saas = [
        sys.executable,
        "-m",
        "saas_ssl",
        "label",
        data,
    ]
    command = [*saas, "--seed", str(seed), "--out", str(out), "--quiet", *options]
    subprocess.run(command, check=True)
    return out


def write_npz(path: Path, data: PartiallyLabelled) -> str:
    """The rows that are not set aside, without the labels that are hidden."""
    rows = data.rows
    x = data.x[rows].numpy()
    y = [data.classes[k] if k >= 0 else "" for k in data.y[rows].tolist()]
    np.savez(path, x=x, y=np.array(y), ids=np.array([data.ids[row] for row in rows.tolist()]))
    return str(path)


def table(run: Path) -> list[dict[str, str]]:
    with (run / "labels.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def results(run: Path) -> Row:
    record: Row = json.loads((run / "run.json").read_text())["results"]
    return record


def truth_of(full: PartiallyLabelled) -> dict[str, str]:
    return {id_: full.classes[k] for id_, k in zip(full.ids, full.y.tolist(), strict=True)}


def calibration(given: argparse.Namespace, seed: int, folder: Path) -> Row:
    """Calibration error on the unlabelled rows, and whether the intervals hold the truth."""
    hidden = ["--keep-labels", str(given.keep_labels)]
    if given.unlabelled:
        hidden += ["--unlabelled", str(given.unlabelled)]
    if given.test:
        hidden += ["--test", given.test]
    run = saas_label(folder, given.data, seed, [*hidden, *given.options])
    truth, found = truth_of(read(given.data)), results(run)
    rows = [row for row in table(run) if row["source"] == "inferred"]
    p = torch.tensor([float(row["probability"]) for row in rows])
    right = torch.tensor([row["label"] == truth[row["id"]] for row in rows])
    trust = found["trust"]
    accuracy = {"all": right.double().mean().item(), "accepted": None}
    accuracy["accepted"] = trust["measured"]["accepted_accuracy"]
    held = {
        f"{name} in interval": None
        if share is None or accuracy[name] is None
        else share["low"] <= accuracy[name] <= share["high"]
        for name, share in (("all", trust["all"]), ("accepted", trust["accepted"]))
    }
    return {
        **trust["measured"],
        **held,
        "accuracy": accuracy["all"],
        "accepted_share": found["accepted"] / len(rows),
        "outlier_share": found["outliers"] / len(rows),
        "trust": trust,
        "errors": {name: found[name] for name in ("saas", "supervised")},
        "reliability": [asdict(b) for b in reliability(p, right)],
    }


def wrong_labels(given: argparse.Namespace, seed: int, folder: Path) -> Row:
    """Precision and recall of the marks, beside cleanlab's on the same scores."""
    from cleanlab.filter import find_label_issues

    full, generator = read(given.data), generator_at(seed, "kept labels")
    data = keep_labels(full, given.keep_labels, generator, given.unlabelled)
    rows, K = data.labelled_rows, data.n_classes
    replaced = rows[torch.randperm(len(rows), generator=generator)[: round(WRONG * len(rows))]]
    y = data.y.clone()
    others = 1 + torch.randint(K - 1, (len(replaced),), generator=generator)
    y[replaced] = (y[replaced] + others) % K
    run = saas_label(
        folder, write_npz(folder / "data.npz", data.with_labels(y)), seed, given.options
    )
    truth, lines = truth_of(full), table(run)
    p = load_file(run / "posterior.safetensors")["probabilities"].numpy()
    left_out = [
        (row, q)
        for row, q in zip(lines, p, strict=True)
        if row["source"] == "given" and np.isfinite(q).all()
    ]
    wrong = np.array([row["label"] != truth[row["id"]] for row, _ in left_out])
    classes = list(data.classes)
    labels = np.array([classes.index(row["label"]) for row, _ in left_out])
    marks = {
        "ours": np.array([row["decision"] == "review" for row, _ in left_out]),
        "cleanlab": find_label_issues(labels, np.array([q for _, q in left_out])),
    }
    inferred = [row for row in lines if row["source"] == "inferred"]
    return {
        "left_out": len(left_out),
        "wrong": int(wrong.sum()),
        **{name: found_of(mark, wrong) for name, mark in marks.items()},
        "accuracy": float(np.mean([row["label"] == truth[row["id"]] for row in inferred])),
        "trust": results(run)["trust"],
    }


def found_of(marks: NDArray[np.bool_], wrong: NDArray[np.bool_]) -> Row:
    hits = int((marks & wrong).sum())
    precision = hits / int(marks.sum()) if marks.any() else None
    return {"marked": int(marks.sum()), "hits": hits, "precision": precision}


def outliers(given: argparse.Namespace, seed: int, folder: Path) -> Row:
    """Rows of two more classes among the unlabelled ones: are they found, do others suffer?"""
    full, generator = read(given.data), generator_at(seed, "kept labels")
    known = (full.y < KNOWN).nonzero().squeeze(1)
    some = replace(full.take(known), classes=full.classes[:KNOWN])
    n = None if given.unlabelled is None else given.unlabelled * KNOWN // full.n_classes
    data = keep_labels(some, given.keep_labels, generator, n)
    short = ["--set", "classifier_epochs=1"]  # its labels do not depend on phase two
    alone = saas_label(
        folder, write_npz(folder / "known.npz", data), seed, [*given.options, *short]
    )
    strange = (full.y >= KNOWN).nonzero().squeeze(1)
    if given.unlabelled is not None:
        order = torch.randperm(len(strange), generator=generator)
        strange = strange[order[: given.unlabelled - int(n or 0)]]
    used = data.rows
    mixed = PartiallyLabelled(
        torch.cat([data.x[used], full.x[strange]]),
        torch.cat([data.y[used], torch.full((len(strange),), UNLABELLED)]),
        data.classes,
        [data.ids[row] for row in used.tolist()] + [full.ids[row] for row in strange.tolist()],
    )
    (folder / "mixed").mkdir()
    npz = write_npz(folder / "mixed" / "mixed.npz", mixed)
    run = saas_label(folder / "mixed", npz, seed, given.options)
    truth = truth_of(full)
    rows = [row for row in table(run) if row["source"] == "inferred"]
    is_strange = np.array([truth[row["id"]] not in data.classes for row in rows])
    marked = np.array([row["decision"] == "outlier" for row in rows])
    strangeness = load_file(run / "posterior.safetensors")["strangeness"].numpy()
    f = supervised(mixed, seed)
    by_baseline = [
        {**row, "label": data.classes[k]} for row, k in zip(rows, f.argmax(1), strict=True)
    ]
    return {
        "strange": int(is_strange.sum()),
        "auroc": float(roc_auc_score(is_strange, strangeness)),
        "auroc_supervised": float(roc_auc_score(is_strange, -f.max(axis=1))),
        "marks": found_of(marked, is_strange),
        "accepted_strange": float(
            np.mean([r["decision"] == "accept" for r, s in zip(rows, is_strange, strict=True) if s])
        ),
        "error_of_known_rows": known_error(rows, truth, data.classes),
        "error_without_strange_rows": known_error(
            [row for row in table(alone) if row["source"] == "inferred"], truth, data.classes
        ),
        "error_of_known_rows_supervised": known_error(by_baseline, truth, data.classes),
    }


def known_error(
    rows: Sequence[dict[str, str]], truth: dict[str, str], classes: Sequence[str]
) -> float:
    known = [row for row in rows if truth[row["id"]] in classes]
    return float(np.mean([row["label"] != truth[row["id"]] for row in known]))


def supervised(data: PartiallyLabelled, seed: int) -> NDArray[np.float32]:
    """Outputs of the supervised baseline, which `saas label` trains likewise."""
    problem = prepare(data, chosen_settings(data, None, {}), seed)
    *_, last = train_supervised(problem)
    f: NDArray[np.float32] = predict(
        last.w, problem.preprocessing, data.x, data.unlabelled_rows
    ).numpy()
    return f


def imbalance(given: argparse.Namespace, seed: int, folder: Path) -> Row:
    """Unlabelled rows of which the first class has ten times as many as the last."""
    full, generator = read(given.data), generator_at(seed, "kept labels")
    data = keep_labels(full, given.keep_labels, generator)
    K = data.n_classes
    shares = np.array([IMBALANCE ** (-k / (K - 1)) for k in range(K)])
    counts = (given.unlabelled * shares / shares.sum()).astype(int)
    y = data.y.clone()
    for k, count in enumerate(counts.tolist()):
        own = ((data.y == UNLABELLED) & (full.y == k)).nonzero().squeeze(1)
        y[own[torch.randperm(len(own), generator=generator)[count:]]] = SET_ASIDE
    test = read(given.test)
    smallest = int(torch.bincount(test.y).min())
    kept = torch.cat([(test.y == k).nonzero().squeeze(1)[:smallest] for k in range(K)])
    balanced = write_npz(folder / "test.npz", test.take(kept.sort().values))
    npz = write_npz(folder / "data.npz", data.with_labels(y))
    run = saas_label(folder, npz, seed, ["--test", balanced, *given.options])
    truth, found = truth_of(full), results(run)
    errors = [
        np.mean([row["label"] != name for row in rows])
        for name in data.classes
        if (
            rows := [
                row
                for row in table(run)
                if row["source"] == "inferred" and truth[row["id"]] == name
            ]
        )
    ]
    return {
        "counts": counts.tolist(),
        "balanced_error_of_labels": float(np.mean(errors)),
        "balanced_test_error": found["saas"]["test_error"],
        "balanced_test_error_supervised": found["supervised"]["test_error"],
        "shift": found["trust"]["shift"],
    }


EXPERIMENTS = {
    "calibration": calibration,
    "wrong-labels": wrong_labels,
    "outliers": outliers,
    "imbalance": imbalance,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("data")
    parser.add_argument("--keep-labels", type=int, required=True)
    parser.add_argument("--unlabelled", type=int)
    parser.add_argument("--test")
    parser.add_argument(
        "--options", type=shlex.split, default=[], help="--options='...' of saas label"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        with tempfile.TemporaryDirectory() as folder:
            row = EXPERIMENTS[given.experiment](given, seed, Path(folder))
        line = {"experiment": given.experiment, "data": given.data, "seed": seed}
        print(json.dumps({**line, "options": given.options, **row}), flush=True)


if __name__ == "__main__":
    main()
