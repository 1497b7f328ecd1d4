"""scikit-learn's bundled digits: real data that every installation has."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import interpolate

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.data.splits import hold_out
from saas_ssl.sources.source import Source


def read_digits(image_size: int = 16) -> PartiallyLabelled:
    """1,797 handwritten digits, 8x8 grey, enlarged bilinearly to `image_size`; all labelled."""
    table = torch.from_numpy(np.loadtxt(_file(), delimiter=","))  # 64 pixels, and which digit it is
    pixels = table[:, :-1].float().view(-1, 1, 8, 8) * (255 / 16)
    if image_size != pixels.shape[-1]:
        pixels = interpolate(pixels, size=(image_size, image_size), mode="bilinear")
    return PartiallyLabelled(
        x=pixels.round().clamp(0, 255).to(torch.uint8),
        y=table[:, -1].long(),
        classes=[str(digit) for digit in range(10)],
        ids=[str(row) for row in range(len(pixels))],
    )


def _file() -> Path:
    """Where scikit-learn has them: importing it, as its `load_digits` needs, takes a second."""
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ValueError("the digits are those of scikit-learn, which is not installed")
    return Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"


def find_digits(part: str = "") -> Source:
    """All of the digits, or one of two parts: `test`, 450 of them, and `train`, the others."""
    data = read_digits()
    if part:
        parts = dict(zip(("train", "test"), split_digits(data), strict=True))
        if part not in parts:
            raise ValueError(f"the digits have no part {part!r}: choose train or test")
        data = parts[part]
    return Source(data.ids, [data.classes[k] for k in data.y.tolist()], data.classes, data.x)


def split_digits(data: PartiallyLabelled) -> tuple[PartiallyLabelled, PartiallyLabelled]:
    """(1,347 rows, 450 rows): the same test rows for every seed of a run."""
    return hold_out(data, 450, generator_at(0, "test"))
