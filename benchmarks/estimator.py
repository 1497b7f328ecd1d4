"""SaaSClassifier with its defaults beside scikit-learn's own: accuracy and time, 5 labels a class.

    python benchmarks/estimator.py > results/estimator/results.jsonl
    python benchmarks/estimator.py --table results/estimator/results.jsonl

One JSON line per data set, method and labelled set; the second command makes the tables of
docs/estimator.md of them. `supervised` is SaaSClassifier(outer_iterations=0): the same network,
trained on the labels alone.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, shift
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier

from saas_ssl import SaaSClassifier

Array = NDArray[Any]
LABELS_PER_CLASS = 5


def _faces(n_classes: int = 40, per_class: int = 20, size: int = 64) -> tuple[Array, Array]:
    """Made-up faces, flat, twice as many as Olivetti has: a smooth picture for each person, moved,
    lit from elsewhere and noisy in each photograph.
    """
    draws, y = np.random.default_rng(0), np.arange(n_classes * per_class) % n_classes

    def smooth(sigma: float) -> Array:
        field = gaussian_filter(draws.normal(size=(size, size)), sigma, mode="reflect")
        scaled: Array = field / field.std()
        return scaled

    people = [smooth(4.0) for _ in range(n_classes)]
    photographs = [
        shift(people[k], draws.integers(-4, 5, size=2), mode="reflect") * draws.uniform(0.7, 1.3)
        + 1.0 * smooth(8.0)
        + 0.5 * draws.normal(size=(size, size))
        for k in y
    ]
    return np.stack(photographs).astype(np.float32).reshape(len(y), -1), y


def _digits(images: bool) -> tuple[Array, Array]:
    digits = datasets.load_digits()
    return digits.images if images else digits.data, digits.target


DATA: dict[str, tuple[Callable[[], tuple[Array, Array]], int]] = {
    "digits": (lambda: _digits(images=False), 450),
    "digits, images": (lambda: _digits(images=True), 450),
    "breast_cancer": (lambda: datasets.load_breast_cancer(return_X_y=True), 190),
    "wine": (lambda: datasets.load_wine(return_X_y=True), 60),
    "make_moons": (lambda: datasets.make_moons(1500, noise=0.15, random_state=0), 500),
    "make_classification": (lambda: datasets.make_classification(1500, random_state=0), 500),
    "faces": (_faces, 400),
}
"""Name -> (rows and labels, how many are held out for testing)."""

OURS: dict[str, dict[str, Any]] = {"SaaSClassifier": {}, "supervised": {"outer_iterations": 0}}
THEIRS: dict[str, Callable[[int], Any]] = {
    "RandomForestClassifier": lambda seed: RandomForestClassifier(random_state=seed),
    "SelfTrainingClassifier(RandomForestClassifier())": lambda seed: SelfTrainingClassifier(
        RandomForestClassifier(random_state=seed)
    ),
    "LabelSpreading()": lambda _seed: LabelSpreading(),
    'LabelSpreading(kernel="knn")': lambda _seed: LabelSpreading(kernel="knn"),
    "LabelPropagation()": lambda _seed: LabelPropagation(),
    'LabelPropagation(kernel="knn")': lambda _seed: LabelPropagation(kernel="knn"),
}
METHODS = [*OURS, *THEIRS]


def few_labels(y: Array, seed: int) -> Array:
    """-1 but for five rows of each class."""
    draws = np.random.default_rng(seed)
    rows = [draws.permutation(np.flatnonzero(y == k))[:LABELS_PER_CLASS] for k in np.unique(y)]
    given, kept = np.full_like(y, -1), np.concatenate(rows)
    given[kept] = y[kept]
    return given


def _flat(rows: Array) -> Array:
    return rows.reshape(len(rows), -1)


def measure(name: str, method: str, seed: int) -> dict[str, Any]:
    """One method on one labelled set: what it gets right of the unlabelled and of the test rows."""
    read, n_test = DATA[name]
    X, y = read()
    X, X_test, y, y_test = train_test_split(X, y, test_size=n_test, stratify=y, random_state=0)
    given = few_labels(y, seed)
    unlabelled = given == -1
    if method in THEIRS:  # networks of ours standardise by themselves
        scaler = StandardScaler().fit(_flat(X))
        X, X_test = (scaler.transform(_flat(rows)) for rows in (X, X_test))
    start = time.perf_counter()
    if method in OURS:
        model: Any = SaaSClassifier(random_state=seed, **OURS[method]).fit(X, given)
    elif method.startswith("RandomForest"):
        model = THEIRS[method](seed).fit(X[~unlabelled], given[~unlabelled])
    else:
        model = THEIRS[method](seed).fit(X, given)
    seconds = time.perf_counter() - start
    found = getattr(model, "transduction_", given)
    found = np.where(found == -1, model.predict(X), found)  # self-training leaves some open
    return {
        "data": name,
        "method": method,
        "seed": seed,
        "labelled": int((~unlabelled).sum()),
        "unlabelled": int(unlabelled.sum()),
        "test_accuracy": float(np.mean(model.predict(X_test) == y_test)),
        "unlabelled_accuracy": float(np.mean(found[unlabelled] == y[unlabelled])),
        "seconds": round(seconds, 2),
    }


def table(records: Sequence[dict[str, Any]], quantity: str) -> str:
    """Markdown: a row for each method, a column for each data set, the best of each in bold."""
    names = [name for name in DATA if any(r["data"] == name for r in records)]
    cells: dict[tuple[str, str], list[float]] = {}
    for r in records:
        cells.setdefault((r["method"], r["data"]), []).append(r[quantity])
    shown = [method for method in METHODS if any(r["method"] == method for r in records)]
    lines = [f"| | {' | '.join(names)} |", f"|---{'|---' * len(names)}|"]
    for method in shown:
        row = [f"`{method}`"]
        for name in names:
            values = cells[method, name]
            if quantity == "seconds":
                row.append(f"{mean(values):.2g}")
                continue
            best = max(mean(cells[other, name]) for other in shown)
            text = f"{100 * mean(values):.1f} ± {100 * stdev(values):.1f}"
            row.append(f"**{text}**" if mean(values) == best else text)
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def read_records(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Of JSON lines."""
    return [json.loads(line) for line in lines if line.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="*", choices=[*DATA], default=[*DATA])
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", type=Path, help="the results to make tables of")
    options = parser.parse_args()
    if options.table is not None:
        records = read_records(options.table.read_text().splitlines())
        for quantity in ("test_accuracy", "unlabelled_accuracy", "seconds"):
            print(f"{quantity}\n\n{table(records, quantity)}")
        return
    torch.set_num_threads(1)
    # scikit-learn's, of labels that reach no row and of slow convergence.
    warnings.simplefilter("ignore")
    for name in options.data:
        for method in options.methods:
            for seed in range(options.seeds):
                print(json.dumps(measure(name, method, seed)), flush=True)


if __name__ == "__main__":
    main()
