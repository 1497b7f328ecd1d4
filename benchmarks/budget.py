"""How well `saas label --budget` keeps to the time it is given, and what it makes of it.

    python benchmarks/budget.py --budgets 60 180 --workers 1 2 -- DATA --keep-labels N --test DATA2

One JSON line per run: `took` is the wall time of the whole command, from its start to its end.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def run(budget: int, workers: int, options: list[str]) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [str(Path(sys.executable).with_name("saas")), "label", *options]
        command += ["--budget", f"{budget}s", "--workers", str(workers), "--out", str(out)]
        start = time.monotonic()
        subprocess.run([*command, "--quiet"], check=True)
        took = time.monotonic() - start
        record = json.loads((out / "run.json").read_text())
        phases = [
            json.loads(line)["phase"] for line in (out / "metrics.jsonl").read_text().splitlines()
        ]
    results = record["results"]
    return {
        "budget": budget,
        "workers": workers,
        "took": round(took, 1),
        "took_of_budget": round(took / budget, 3),
        "width": record["config"]["width"],
        "inner_epochs": record["config"]["inner_epochs"],
        "outer_iterations": results["outer_iterations"],
        "classifier_epochs": phases.count("two"),
        "supervised_test_error": results["supervised"]["test_error"],
        "saas_test_error": results["saas"]["test_error"],
        "saas_unlabelled_error": results["saas"]["unlabelled_error"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budgets", type=int, nargs="+", default=[60, 180], help="in seconds")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("options", nargs="+", help="of saas label")
    arguments = parser.parse_args()
    for budget in arguments.budgets:
        for workers in arguments.workers:
            print(json.dumps(run(budget, workers, arguments.options)), flush=True)


if __name__ == "__main__":
    main()
