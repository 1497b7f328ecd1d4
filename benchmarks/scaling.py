"""The cost of `saas label` against the number of rows, at equal shares of labels.

    python benchmarks/scaling.py idx:DIR

Prints one JSON line per size, in interleaved rounds; a tiny network keeps it short.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def run(data: str, rows: int, place: Path) -> dict[str, float]:
    """Label so many rows, 1 in 50 of them labelled: automatic settings, cut short."""
    out = place / str(rows)
    arguments = [data, "--keep-labels", str(rows // 50), "--unlabelled", str(rows - rows // 50)]
    arguments += ["--outer-iterations", "1", "--set", "width=4", "--set", "classifier_epochs=2"]
    arguments += ["--overwrite", "--quiet"]
    saas = Path(sys.executable).with_name("saas")
    subprocess.run([saas, "label", *arguments, "--out", out], check=True)
    results = json.loads((out / "run.json").read_text())["results"]
    passes = results["image_passes"] + results["supervised"]["image_passes"]
    seconds = results["seconds"] + results["supervised"]["seconds"]
    return {
        "rows": rows,
        "image passes": passes,
        "passes per row": round(passes / rows, 2),
        "seconds": round(seconds, 1),
        "ms per row": round(1000 * seconds / rows, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--rows", type=int, nargs="+", default=[5_000, 10_000, 20_000])
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        for _ in range(arguments.rounds):
            for rows in arguments.rows:
                print(json.dumps(run(arguments.data, rows, Path(place))), flush=True)


if __name__ == "__main__":
    main()
