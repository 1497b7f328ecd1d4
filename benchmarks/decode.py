"""Decoding 10,000 small JPEG files: all cores against a loop in one process.

Prints one JSON line per pair of measurements, interleaved, and one with the median ratio.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from saas_ssl.images.pool import enough_workers
from saas_ssl.sources.finding import find
from saas_ssl.sources.reading import read_source


def write_images(folder: Path, n: int, side: int) -> None:
    """Smooth random images, which JPEG likes, in two classes and without a label."""
    rng = np.random.default_rng(0)
    for place in ("a", "b", "unlabeled"):
        (folder / place).mkdir(parents=True)
    for row in range(n):
        coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        place = ("a", "b", *["unlabeled"] * 8)[row % 10]
        coarse.resize((side, side)).save(folder / place / f"{row}.jpg", quality=85)


def plain_loop(folder: Path) -> int:
    """What one would write by hand."""
    pixels = []
    for file in sorted(folder.rglob("*.jpg")):
        with Image.open(file) as image:
            upright = ImageOps.exif_transpose(image).convert("RGB")
            pixels.append(np.asarray(ImageOps.fit(upright, (32, 32))))
    return len(np.stack(pixels))


def all_cores(folder: Path) -> int:
    """What `saas label` does, from listing the folder to the memory map."""
    return len(read_source(find(str(folder)), 32).data.y)


def timed(work: object, folder: Path) -> float:
    start = time.perf_counter()
    assert callable(work)
    work(folder)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_images(folder, arguments.images, arguments.side)
        plain_loop(folder)  # the files are in the disk cache for both
        for _ in range(arguments.rounds):
            loop, ours = timed(plain_loop, folder), timed(all_cores, folder)
            ratios.append(loop / ours)
            print(json.dumps({"loop s": round(loop, 2), "all cores s": round(ours, 2)}))
    result = {
        "images": arguments.images,
        "side": arguments.side,
        "workers": enough_workers(arguments.images),
        "times faster, median": round(statistics.median(ratios), 2),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
