"""The original SVHN files: cropped digits as MATLAB files of version 5."""

from pathlib import Path

import numpy as np
import torch

from saas_ssl.data.arrays import as_labels
from saas_ssl.data.source import Source, class_names

_SPLITS = ("train", "test", "extra")


def find_svhn(folder: Path, split: str = "train") -> Source:
    """`train_32x32.mat`, `test_32x32.mat` or `extra_32x32.mat`; their label 10 is digit 0."""
    from scipy.io import loadmat  # heavy: only where it is needed

    if split not in _SPLITS:
        raise ValueError(f"SVHN has no part {split!r}: choose one of {', '.join(_SPLITS)}")
    path = folder / f"{split}_32x32.mat"
    if not path.is_file():
        raise ValueError(f"{path} does not exist")
    try:
        arrays = loadmat(path, variable_names=("X", "y"))
        images, y = np.asarray(arrays["X"]), np.asarray(arrays["y"]).reshape(-1)
    except Exception:  # a broken file makes its reader raise anything
        raise ValueError(f"{path} is not a MATLAB file of version 5 with X and y") from None
    if images.ndim != 4 or images.shape[2] != 3 or images.dtype != np.uint8:
        raise ValueError(f"{path}: X must be bytes (H, W, 3, N), not {images.dtype} {images.shape}")
    if len(y) != images.shape[3] or y.dtype.kind not in "ui" or not ((y >= 0) & (y <= 10)).all():
        raise ValueError(
            f"{path}: y must hold a label from 1 to 10 for each of {images.shape[3]} images"
        )
    labels = as_labels(y % 10, len(y))
    x = torch.from_numpy(np.ascontiguousarray(images.transpose(3, 2, 0, 1)))
    return Source([str(row) for row in range(len(y))], labels, class_names(labels), x)
