"""Accuracy of `saas demo` over several label sets: `python benchmarks/digits.py`, minutes.

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
    seeds = parser.parse_args().seeds
    rows: list[dict[str, float]] = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            command = "import saas_ssl.cli; saas_ssl.cli.main()"
            arguments = ["demo", "--seed", str(seed), "--out", str(out), "--quiet"]
            subprocess.run([sys.executable, "-c", command, *arguments], check=True)
            record = json.loads((out / "run.json").read_text())
        results = record["results"]
        row = {name: results[name.split(".")[0]][name.split(".")[1]] for name in ERRORS}
        row["seconds"] = results["seconds"] + results["supervised"]["seconds"]
        rows.append(row)
        print(
            json.dumps({"seed": seed, **row, "image_passes": results["image_passes"]}), flush=True
        )
    summary: dict[str, object] = {"seeds": seeds, "hardware": record["hardware"]}
    for name in rows[0]:
        values = [row[name] for row in rows]
        summary[name] = {
            "mean": round(statistics.mean(values), 5),
            "std": round(statistics.stdev(values), 5) if seeds > 1 else None,
        }
    baseline, ours = (
        statistics.mean(row[name] for row in rows)
        for name in ("supervised.test_error", "saas.test_error")
    )
    summary["ratio of test errors"] = round(ours / baseline, 3)
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
