"""Peak memory of `saas label` and `saas predict` on 2,000 and on 20,000 images.

Prints one JSON line per measurement. The decoded images are memory-mapped; pages of the map count
as resident while memory is plentiful, so they are given beside the peak.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from decode import write_images

SIDE = 32
QUICK = ["--inner-epochs", "1", "--outer-iterations", "1", "--augmentation", "none"]
QUICK += ["--classifier-augmentation", "none", "--batch-size", "50", "--labelled-batch-size", "5"]
QUICK += ["--set", "classifier_epochs=1", "--set", "width=2", "--quiet"]


def peak_megabytes(*arguments: str) -> float:
    """The largest resident set of a command or of one of its own processes."""
    saas = Path(sys.executable).with_name("saas")
    process = os.posix_spawn(saas, [str(saas), *arguments], os.environ)
    _, status, usage = os.wait4(process, 0)
    if status:
        sys.exit(f"saas {' '.join(arguments)} failed")
    return usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, nargs="+", default=[2_000, 20_000])
    for n in parser.parse_args().images:
        with tempfile.TemporaryDirectory() as place:
            images, run, table = (f"{place}/{name}" for name in ("images", "run", "labels.csv"))
            write_images(Path(images), n, side=64)
            label = ["label", images, "--out", run, "--image-size", str(SIDE), *QUICK]
            predict = ["predict", run, images, "--out", table, "--quiet"]
            for name, command in (("label", label), ("predict", predict)):
                mapped = n * 3 * SIDE * SIDE / 2**20 if name == "label" else 0.0
                result = {
                    "command": name,
                    "images": n,
                    "peak MB": round(peak_megabytes(*command), 1),
                    "memory map MB": round(mapped, 1),
                }
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
