"""npz files: arrays of images or of features."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saas_ssl.data.arrays import as_labels, as_rows
from saas_ssl.sources.source import Source, class_names


def find_npz(path: Path) -> Source:
    """Arrays `x` and `y`, and optionally `classes` and `ids`."""
    try:
        # Opened here: numpy leaves it open when it is broken.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {
                name: np.asarray(archive[name])  # bytes, where a zip file holds something else
                for name in ("x", "y", "classes", "ids")
                if name in archive
            }
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except Exception as error:  # a broken file makes its readers raise anything
        if "allow_pickle" in str(error) and zipfile.is_zipfile(path):
            raise ValueError(
                f"{path} holds Python objects, which are never loaded: save plain numbers or text"
            ) from None
        raise ValueError(f"{path} is not an npz file, or a broken one") from None
    if "x" not in arrays:
        raise ValueError(f"{path} has no array x: it needs x, and y for the labels")
    try:
        x = as_rows(arrays["x"])
        labels = as_labels(arrays.get("y"), len(x), _texts(arrays.get("classes"), "classes"))
        ids = _texts(arrays.get("ids"), "ids") or [str(row) for row in range(len(x))]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if len(ids) != len(x):
        raise ValueError(f"{path}: there are {len(x)} rows but {len(ids)} ids")
    present = class_names(labels)
    named = _texts(arrays.get("classes"), "classes") or present
    unnamed = [name for name in present if name not in named]
    if unnamed:
        raise ValueError(f"{path}: y has the label {unnamed[0]!r}, which is none of the classes")
    return Source(ids, labels, [name for name in named if name in present], x)


def _texts(array: NDArray[Any] | None, name: str) -> list[str] | None:
    if array is None:
        return None
    if array.ndim != 1:
        raise ValueError(f"{name} must be a list, not an array of shape {array.shape}")
    return [text.decode() if isinstance(text, bytes) else str(text) for text in array.tolist()]
