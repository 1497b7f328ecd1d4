"""Do corrections of the rows that `saas review` shows first help more than as many random ones?

    python benchmarks/review.py --seeds 3 idx:DIR --keep-labels 100 --unlabelled 10000 \
        --checks 100 --test idx:DIR:test

A simulated reviewer who knows the true labels checks the first rows of the page, exports them, and
labels again: `saas label`, the log and the export of `saas review`, and `saas label --labels`. The
other arm labels as many random rows. One JSON line per seed. `--orders` compares other orders, too.
"""

import argparse
import csv
import json
import shlex
import tempfile
from pathlib import Path

import torch

from saas_ssl import generator_at, keep_labels, read
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.review.corrected import export_corrected
from saas_ssl.review.log import ReviewLog
from saas_ssl.review.table import ORDERS, Query, Table
from saas_ssl.runs.finished import read_labels, tensor_of, typed_rows
from trust import Row, results, saas_label, table, truth_of, write_npz

RANDOM = "random"


def checked_first(run: Path, n: int, order: str, truth: dict[str, str], out: Path) -> list[str]:
    """The reviewer checks the first rows of the page; what to label again is in `out`."""
    labels = read_labels(run)
    rows = typed_rows(labels)
    helpful = tensor_of(run, "review_order", len(rows)).tolist()
    with ReviewLog(run, [row.id for row in rows], labels.classes) as log:
        page = Table(rows, helpful).page(Query(order=order, limit=n), log.reviewed)  # type: ignore[arg-type]
        log.decide({row: truth[rows[row].id] for row in page.rows}, {})
    export_corrected(run, out)
    (run / "review.jsonl").unlink()  # for the next reviewer
    return [rows[row].id for row in page.rows]


def random_rows(run: Path, n: int, seed: int, truth: dict[str, str], out: Path) -> list[str]:
    """As many random rows get their labels, beside the given ones."""
    rows = table(run)
    inferred = [row["id"] for row in rows if row["source"] == "inferred"]
    order = torch.randperm(len(inferred), generator=generator_at(seed, "random rows"))
    chosen = [inferred[at] for at in order[:n].tolist()]
    given = [row["id"] for row in rows if row["source"] == "given"]
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "label"])
        writer.writerows([id_, truth[id_]] for id_ in (*given, *chosen))
    return chosen


def measured(run: Path, asked: set[str], untouched: set[str], truth: dict[str, str]) -> Row:
    """Of the rows that had no label at first: `asked` all of them, `untouched` by any reviewer."""
    right = {row["id"]: row["label"] == truth[row["id"]] for row in table(run)}
    found = results(run)
    trust = found["trust"]
    inferred = [row for row in table(run) if row["source"] == "inferred"]
    accuracy = sum(right[row["id"]] for row in inferred) / len(inferred)
    accepted = [right[row["id"]] for row in inferred if row["decision"] == "accept"]
    return {
        "accuracy": sum(right[id_] for id_ in asked) / len(asked),
        "accuracy_untouched": sum(right[id_] for id_ in untouched) / len(untouched),
        "test_error": found["saas"]["test_error"],
        "accepted": len(accepted),
        "accepted_accuracy": sum(accepted) / len(accepted) if accepted else None,
        "expected": trust["all"],
        "inferred_accuracy": accuracy,
        "in_interval": trust["all"]["low"] <= accuracy <= trust["all"]["high"],
        "left_out": trust["left_out"],
        "suspects": trust["suspects"],
    }


def closed_loop(given: argparse.Namespace, seed: int, folder: Path) -> Row:
    """One run, and one more for each way to choose the rows that are checked."""
    full: PartiallyLabelled = read(given.data)
    data = keep_labels(full, given.keep_labels, generator_at(seed, "kept labels"), given.unlabelled)
    truth, npz = truth_of(full), write_npz(folder / "data.npz", data)
    test = ["--test", given.test] if given.test else []
    (folder / "first").mkdir()
    first = saas_label(folder / "first", npz, seed, [*test, *given.options])
    asked = {data.ids[row] for row in data.unlabelled_rows.tolist()}
    before = {row["id"]: row["label"] for row in table(first)}
    arms, chosen = dict[str, Path](), dict[str, list[str]]()
    for arm in (*given.orders, RANDOM):
        corrected = folder / f"{arm}.csv"
        if arm == RANDOM:
            chosen[arm] = random_rows(first, given.checks, seed, truth, corrected)
        else:
            chosen[arm] = checked_first(first, given.checks, arm, truth, corrected)
        (folder / arm).mkdir()
        options = ["--labels", str(corrected), *test, *given.options]
        arms[arm] = saas_label(folder / arm, npz, seed, options)
    untouched = asked.difference(*chosen.values())
    found = {
        arm: {
            "wrong_before": sum(before[id_] != truth[id_] for id_ in chosen[arm]),
            **measured(run, asked, untouched, truth),
        }
        for arm, run in arms.items()
    }
    return {"before": measured(first, asked, untouched, truth), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("data")
    parser.add_argument("--keep-labels", type=int, required=True)
    parser.add_argument("--unlabelled", type=int)
    parser.add_argument("--checks", type=int, default=100)
    parser.add_argument("--test")
    parser.add_argument("--orders", nargs="+", default=["helpful"], choices=ORDERS)
    parser.add_argument(
        "--options", type=shlex.split, default=[], help="--options='...' of saas label"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        with tempfile.TemporaryDirectory() as folder:
            row = closed_loop(given, seed, Path(folder))
        line = {"data": given.data, "seed": seed, "checks": given.checks}
        print(json.dumps({**line, "options": given.options, **row}), flush=True)


if __name__ == "__main__":
    main()
