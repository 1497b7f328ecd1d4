"""The idx files of MNIST and its family, gzipped or not."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from saas_ssl.data.arrays import as_labels
from saas_ssl.sources.source import Source, class_names

_SPLITS = {"train": ("train",), "test": ("t10k", "test")}
_UNSIGNED_BYTES = 8


def find_idx(folder: Path, split: str = "train") -> Source:
    """Images and labels of one split of a folder."""
    images = _read(_file(folder, split, "images"), dimensions=3)
    y = _read(_file(folder, split, "labels"), dimensions=1)
    if len(images) != len(y):
        raise ValueError(f"{folder} holds {len(images)} {split} images but {len(y)} labels")
    labels = as_labels(y, len(y))
    ids = [str(row) for row in range(len(y))]
    return Source(ids, labels, class_names(labels), torch.from_numpy(images).unsqueeze(1))


def _file(folder: Path, split: str, kind: str) -> Path:
    """The one file of a folder whose name says that it is this."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    if split not in _SPLITS:
        raise ValueError(f"idx files have no part {split!r}: choose train or test")
    found = sorted(
        path
        for path in folder.iterdir()
        if kind in path.name and "idx" in path.name and any(s in path.name for s in _SPLITS[split])
    )
    # Of a file and its gzipped form either will do.
    if len({path.name.removesuffix(".gz") for path in found}) != 1:
        what = "several" if found else "no"
        example = f"{_SPLITS[split][0]}-{kind}-idx{3 if kind == 'images' else 1}-ubyte.gz"
        raise ValueError(f"{folder} has {what} idx files of {split} {kind}, such as {example}")
    return found[0]


def _read(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An array of unsigned bytes: two zeros, type, number of dimensions, their sizes, the bytes."""
    try:
        data = bytearray(
            gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        )
    except (OSError, EOFError, zlib.error):
        raise ValueError(f"{path} cannot be read: a broken gzip file?") from None
    start = 4 + 4 * dimensions
    if len(data) < start or data[:4] != bytes([0, 0, _UNSIGNED_BYTES, dimensions]):
        raise ValueError(f"{path} is not an idx file of unsigned bytes in {dimensions} dimensions")
    shape = np.frombuffer(data[4:start], ">u4").tolist()
    if len(data) != start + math.prod(shape):
        raise ValueError(f"{path} is cut off: it says {shape} but has {len(data) - start} bytes")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
