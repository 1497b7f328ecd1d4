"""Reliability diagrams of `benchmarks/trust.py calibration`.

    python benchmarks/reliability.py results/trust/*.jsonl --out results/trust/reliability.png

One panel per file, one line per seed: the share of right labels among those of like probability.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes

LEAST_ROWS = 20  # of a bin, or its share says little


def draw(axes: Axes, title: str, runs: list[dict[str, Any]]) -> None:
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--")
    for run in runs:
        bins = [b for b in run["reliability"] if b["rows"] >= LEAST_ROWS]
        said, true = ([b[name] for b in bins] for name in ("said", "true"))
        axes.plot(said, true, marker="o", markersize=3, linewidth=1, alpha=0.8)
    error = sum(run["calibration_error"] for run in runs) / len(runs)
    axes.set_title(
        f"{title}\n{len(runs)} run{'s' * (len(runs) > 1)}, mean ECE {error:.3f}", fontsize=9
    )
    axes.set_xlabel("probability in labels.csv")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    figure, axes = pyplot.subplots(
        1, len(given.files), figsize=(3.2 * len(given.files), 3.6), squeeze=False, sharey=True
    )
    for place, file in zip(axes[0], given.files, strict=True):
        draw(place, file.stem, [json.loads(line) for line in file.read_text().splitlines()])
    axes[0][0].set_ylabel("share of right labels")
    figure.tight_layout()
    figure.savefig(given.out, dpi=120)


if __name__ == "__main__":
    main()
