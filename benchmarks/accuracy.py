"""Errors of `saas demo` or `saas label` over several label sets.

    python benchmarks/accuracy.py --seeds 5 demo
    python benchmarks/accuracy.py --seeds 3 label DATA --keep-labels N --test DATA2 [...]

One JSON line per seed, then one with mean and standard deviation.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ERRORS = (
    "supervised.test_error",
    "saas.unlabelled_error",
    "saas.classifier_unlabelled_error",
    "saas.test_error",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="demo, or label and its options")
    arguments = parser.parse_args()
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            out = Path(folder) / str(seed)
            saas = [
                sys.executable,
                "-m",
                "saas_ssl",
            ]
            options = ["--seed", str(seed), "--out", str(out), "--quiet"]
            subprocess.run([*saas, *arguments.command, *options], check=True)
            record = json.loads((out / "run.json").read_text())
            results = record["results"]
            row = {name: results[name.split(".")[0]][name.split(".")[1]] for name in ERRORS}
            if None in row.values():
                sys.exit("errors are known only with --keep-labels and --test")
            row["seconds"] = results["seconds"] + results["supervised"]["seconds"]
            row["image_passes"] = results["image_passes"]
            rows.append(row)
            print(json.dumps({"seed": seed, **row, "inner": results["inner"]}), flush=True)
    summary: dict[str, object] = {"seeds": len(rows), "hardware": record["hardware"]}
    for name in rows[0]:
        values = [row[name] for row in rows]
        summary[name] = {
            "mean": round(statistics.mean(values), 5),
            "std": round(statistics.stdev(values), 5) if len(rows) > 1 else None,
        }
    baseline, ours = (
        statistics.mean(row[name] for row in rows)
        for name in ("supervised.test_error", "saas.test_error")
    )
    summary["ratio of test errors"] = round(ours / baseline, 3)
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
