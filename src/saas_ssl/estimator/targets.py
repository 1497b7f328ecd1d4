"""The labels of a notebook: any kind of array -> numbers of classes, and -1 where there is none."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from saas_ssl.algorithm.partially_labelled import UNLABELLED

_NUMPYS_MISTAKES = {"nan", str(UNLABELLED)}  # what it makes of NaN and -1 among texts


def as_targets(y: Any) -> NDArray[Any]:
    """A plain array of labels: lists keep None and NaN among texts, tensors leave their device."""
    if hasattr(y, "detach"):
        y = y.detach().cpu().numpy()
    if isinstance(y, list | tuple) and any(isinstance(label, str) for label in y):
        return np.array(y, dtype=object)
    array = np.asarray(y)
    return array.astype(str) if array.dtype.kind == "S" else array


def known_labels(y: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """(Which rows have a label, those labels): -1, NaN, None and empty text are none."""
    known = np.array([not _is_missing(label) for label in y.tolist()], bool)
    labels = y[known]
    if y.dtype.kind == "U" and (mistakes := _NUMPYS_MISTAKES.intersection(labels.tolist())):
        raise ValueError(
            f"y has the text {min(mistakes)!r}, which numpy makes of missing values among texts: "
            "give y as a list, or with dtype=object"
        )
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise ValueError("y has infinite labels")
    if y.dtype.kind == "O":
        texts = sum(isinstance(label, str) for label in labels.tolist())
        if 0 < texts < len(labels):
            raise ValueError("y has both texts and other labels: give labels of one kind")
        labels = np.array(labels.tolist())
    return known, labels


def encoded(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """(The sorted classes, the number of each label's class or -1)."""
    known, labels = known_labels(y)
    codes = np.full(len(y), UNLABELLED, np.int64)
    classes, codes[known] = np.unique(labels, return_inverse=True)
    return classes, codes


def _is_missing(label: Any) -> bool:
    if isinstance(label, str):
        return not label.strip()
    if label is None:
        return True
    try:
        return bool(label != label or (label == UNLABELLED and not isinstance(label, bool)))
    except TypeError:  # pandas.NA is neither equal to itself nor not
        return True
