"""Folders of small photos for the tests, drawn by them."""

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("blue", "green", "red")


def photo(k: int, rng: np.random.Generator, side: int = 24) -> Image.Image:
    """Noise with a bright square of one colour: class k is the channel."""
    pixels = rng.integers(0, 120, (side, side, 3), dtype=np.uint8)
    top, left = rng.integers(0, side // 2, 2)
    pixels[top : top + side // 2, left : left + side // 2, 2 - k] = 255
    return Image.fromarray(pixels)


def write_photos(folder: Path, n: int, labelled: int, seed: int = 0) -> dict[str, str]:
    """n photos in class subfolders (`labelled` of each class) and `unlabeled`; id -> true class."""
    rng, truth = np.random.default_rng(seed), dict[str, str]()
    for row in range(n):
        k = row % len(CLASSES)
        place = CLASSES[k] if row < labelled * len(CLASSES) else "unlabeled"
        path = folder / place / f"{row:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo(k, rng).save(path)
        truth[path.relative_to(folder).as_posix()] = CLASSES[k]
    return truth
