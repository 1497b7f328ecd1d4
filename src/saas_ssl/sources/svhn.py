"""The original SVHN files: cropped digits as MATLAB files of version 5."""

import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from saas_ssl.data.arrays import as_labels
from saas_ssl.sources.source import Source, class_names

_SPLITS = ("train", "test", "extra")
_HEADER, _LITTLE_ENDIAN = 128, b"IM"
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}


def find_svhn(folder: Path, split: str = "train") -> Source:
    """`train_32x32.mat`, `test_32x32.mat` or `extra_32x32.mat`; their label 10 is digit 0."""
    if split not in _SPLITS:
        raise ValueError(f"SVHN has no part {split!r}: choose one of {', '.join(_SPLITS)}")
    path = folder / f"{split}_32x32.mat"
    if not path.is_file():
        raise ValueError(f"{path} does not exist")
    try:
        arrays = dict(_arrays(path.read_bytes()))
        images, y = arrays["X"], arrays["y"].reshape(-1)
    except (ValueError, KeyError, struct.error, zlib.error):
        raise ValueError(f"{path} is not a MATLAB file of version 5 with X and y") from None
    if images.ndim != 4 or images.shape[2] != 3 or images.dtype != np.uint8:
        raise ValueError(f"{path}: X must be bytes (H, W, 3, N), not {images.dtype} {images.shape}")
    if len(y) != images.shape[3] or not np.isin(y, range(11)).all():
        raise ValueError(
            f"{path}: y must hold a label from 1 to 10 for each of {images.shape[3]} images"
        )
    labels = as_labels(y.astype(np.int64) % 10, len(y))
    x = torch.from_numpy(np.ascontiguousarray(images.transpose(3, 2, 0, 1)))
    return Source([str(row) for row in range(len(y))], labels, class_names(labels), x)


def _arrays(data: bytes) -> Iterator[tuple[str, NDArray[Any]]]:
    """(Name, values) of the arrays of numbers in a file.

    Not by scipy: its reader takes what a broken file says for addresses, and crashes.
    """
    if data[_HEADER - 2 : _HEADER] != _LITTLE_ENDIAN:
        raise ValueError("not a file of this version")
    for kind, content in _elements(memoryview(data)[_HEADER:]):
        if kind == _COMPRESSED:
            kind, content = next(_elements(memoryview(zlib.decompress(content))), (0, content))
        if kind != _MATRIX:
            continue
        parts = list(islice(_elements(content), 4))  # its flags, shape, name, and values
        if len(parts) == 4 and parts[3][0] in _NUMBERS:
            shape = np.frombuffer(parts[1][1], "<i4").tolist()
            values = np.frombuffer(parts[3][1], "<" + _NUMBERS[parts[3][0]])
            if min(shape) < 0:  # reshape would take it for what is left
                raise ValueError("broken")
            yield bytes(parts[2][1]).decode("latin1"), values.reshape(shape, order="F")


def _elements(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """(Type, content) of each element; a short one has both in eight bytes."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind >> 16:
            kind, size, start, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        else:
            start = at + 8
            end = start + size if kind == _COMPRESSED else start + (size + 7) // 8 * 8
        if start + size > min(end, len(data)):
            raise ValueError("cut off")
        yield kind, data[start : start + size]
        at = end
