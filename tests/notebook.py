"""What a notebook holds: rows of a few kinds, and an estimator that learns them in a moment."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_blobs

from saas_ssl import SaaSClassifier

Array = NDArray[Any]


Quick = partial(
    SaaSClassifier,
    width=16,
    inner_epochs=8,
    outer_iterations=2,
    batch_size=30,
    classifier_epochs=8,
    initial_posterior="uniform",
    random_state=0,
)
"""A cheap one, good enough for clusters."""


def clusters(
    n: int = 150, K: int = 3, labelled: int = 15, d: int = 10
) -> tuple[Array, Array, Array]:
    """(Rows, labels of the first and -1 elsewhere, true labels)."""
    X, truth = make_blobs(n, n_features=d, centers=K, cluster_std=2.0, random_state=0)
    return X, np.where(np.arange(n) < labelled, truth, -1), truth


def pictures(n: int = 120, channels: int | None = None) -> tuple[Array, Array, Array]:
    """Bright ones and dark ones, uint8 (n, 10, 12) or (n, 10, 12, C), as `clusters` has rows."""
    draws, truth = np.random.default_rng(0), np.arange(n) % 2
    shape = (n, 10, 12) if channels is None else (n, 10, 12, channels)
    light = np.where(truth, 170, 70).reshape(-1, *(1 for _ in shape[1:]))
    X = (light + draws.integers(-60, 60, size=shape)).astype(np.uint8)
    return X, np.where(np.arange(n) < 12, truth, -1), truth
