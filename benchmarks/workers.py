"""One worker, two workers, two threads: trajectories per second, and time to an accuracy.

    python benchmarks/workers.py idx:DIR

Runs `saas label` in interleaved pairs of one and two workers with a short inner loop, and takes the
time of an outer iteration from metrics.jsonl; the first one, in which workers still start, does not
count. Then it runs the automatic settings with one worker, two workers, and one worker of two
threads, and says when the posterior of 10,000 rows has reached some accuracies, from 100 labels.
Prints one JSON line per run, and one with the ratios. A pair takes about a minute, a seed ten; with
--repeat 0, or --seeds and no number, the one or the other is left out. Two cores must be free.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

WAYS = {
    "1 worker": [],
    "2 workers": ["--workers", "2"],
    "1 worker, 2 threads": ["--threads", "2"],
}


def emit(**result: object) -> None:
    print(json.dumps(result), flush=True)


def outer_iterations(*options: str) -> list[dict[str, Any]]:
    """What metrics.jsonl says of phase one; the baseline and phase two are as short as can be."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        short = ["--set", "classifier_epochs=1", "--quiet", "--out", str(run)]
        saas = Path(sys.executable).with_name("saas")
        subprocess.run([saas, "label", *options, *short], check=True)
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        return [line for line in lines if line["phase"] == "one"]


def lengths(outers: list[dict[str, Any]]) -> list[float]:
    """Seconds of each outer iteration but the first."""
    return [round(b["seconds"] - a["seconds"], 3) for a, b in pairwise(outers)]


def trajectories_per_second(workers: int, pair: int, options: list[str]) -> float:
    outers = outer_iterations(*options, "--workers", str(workers))
    rate = workers / statistics.median(seconds := lengths(outers))
    passes = outers[-1]["image_passes"] - outers[0]["image_passes"]
    emit(
        benchmark="trajectories",
        workers=workers,
        pair=pair,
        seconds_per_outer_iteration=seconds,
        trajectories_per_second=round(rate, 4),
        image_passes_per_second=round(passes / sum(seconds)),
    )
    return rate


def compare_rates(pairs: int, options: list[str]) -> None:
    ratios = []
    for pair in range(pairs):
        one, two = (trajectories_per_second(workers, pair, options) for workers in (1, 2))
        ratios.append(two / one)
    emit(
        benchmark="trajectories",
        what="2 workers against 1",
        times_faster=round(statistics.median(ratios), 3),
        spread=[round(min(ratios), 3), round(max(ratios), 3)],
        pairs=pairs,
    )


def time_to_accuracies(what: str, seed: int, wanted: list[float], options: list[str]) -> None:
    outers = outer_iterations(*options, *WAYS[what], "--seed", str(seed))
    reached = {
        accuracy: next((o for o in outers if o["unlabelled_accuracy"] >= accuracy), None)
        for accuracy in wanted
    }
    emit(
        benchmark="time to accuracy",
        what=what,
        seed=seed,
        seconds={accuracy: outer and outer["seconds"] for accuracy, outer in reached.items()},
        outer_iterations={
            accuracy: outer and outer["outer"] + 1 for accuracy, outer in reached.items()
        },
        accuracies=[round(outer["unlabelled_accuracy"], 4) for outer in outers],
        seconds_after_each=[outer["seconds"] for outer in outers],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--unlabelled", type=int, default=10_000)
    parser.add_argument("--accuracies", type=float, nargs="+", default=[0.95, 0.96, 0.97])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--outer-iterations", type=int, help="of the runs to an accuracy")
    parser.add_argument("--repeat", type=int, default=3, help="pairs of one and two workers")
    parser.add_argument("--short-unlabelled", type=int, default=2_000, help="rows of such a pair")
    parser.add_argument("--short-outer-iterations", type=int, default=5)
    arguments = parser.parse_args()
    options = [arguments.data, "--keep-labels", str(arguments.labels)]
    if arguments.repeat:
        short = ["--unlabelled", str(arguments.short_unlabelled), "--inner-epochs", "1"]
        short += ["--outer-iterations", str(arguments.short_outer_iterations)]
        compare_rates(arguments.repeat, [*options, *short])
    options += ["--unlabelled", str(arguments.unlabelled)]
    if arguments.outer_iterations:
        options += ["--outer-iterations", str(arguments.outer_iterations)]
    for seed in arguments.seeds:
        for what in WAYS:
            time_to_accuracies(what, seed, arguments.accuracies, options)


if __name__ == "__main__":
    main()
