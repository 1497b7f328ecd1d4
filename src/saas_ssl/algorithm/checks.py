"""Bad input is refused here, in one sentence, before any work is done."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.simplex import check_alpha


def check_phase_one(
    data: PartiallyLabelled,
    P_u: Tensor | None,
    changes: Sequence[float],
    T: int,
    B: int,
    B_l: int,
    alpha: float,
    patience: int,
    weights: str,
    update: str,
    gradient_at: str,
) -> None:
    """Raise ValueError unless Phase I can start."""
    N_u, K = len(data.unlabelled_rows), data.n_classes
    check_labels(data)
    check_unlabelled(data)
    check_batch(B, N_u, "unlabelled")
    check_batch(B_l, len(data.labelled_stream), "labelled")
    check_alpha(alpha, K)
    if T < 1:
        raise ValueError(f"inner_epochs (T) must be at least 1, not {T}")
    if patience < 1:
        raise ValueError(f"patience must be at least 1, not {patience}")
    for name, value, allowed in (
        ("weights", weights, ("resample", "reset")),
        ("update", update, ("alternate", "joint")),
        ("gradient_at", gradient_at, ("before", "after")),
    ):
        if value not in allowed:
            raise ValueError(f"{name} must be {allowed[0]} or {allowed[1]}, not {value}")
    if P_u is not None:
        check_posterior(P_u, N_u, K)
    elif changes:
        raise ValueError("to continue a run, give the posterior P_u that it had reached")


def check_numbers(**numbers: float) -> None:
    """Raise ValueError for a number that is negative, infinite or not a number."""
    for name, value in numbers.items():
        if not 0.0 <= value < math.inf:
            raise ValueError(f"{name} must be a number of at least 0, not {value:g}")


def check_finite(loss: float, place: str, rate: str) -> None:
    """Raise ValueError if training has diverged."""
    if not math.isfinite(loss):
        raise ValueError(f"training diverged in {place}: lower {rate}")


def check_posterior(P_u: Tensor, N_u: int, K: int) -> None:
    """Raise ValueError unless P_u is a finite N_u x K matrix."""
    if P_u.shape != (N_u, K):
        raise ValueError(
            f"the posterior must have one row for each of the {N_u} unlabelled rows and one column "
            f"for each of the {K} classes, but its shape is {tuple(P_u.shape)}"
        )
    if not P_u.isfinite().all():
        raise ValueError("the posterior has NaN or infinite values")


def check_labels(data: PartiallyLabelled) -> None:
    """Raise ValueError unless every class has a given label."""
    labelled = data.labelled_rows
    if len(labelled) == 0:
        raise ValueError("there are no labelled rows: give at least one label of each class")
    counts = torch.bincount(data.y[labelled], minlength=data.n_classes)
    if (counts == 0).any():
        missing = [repr(data.classes[k]) for k in (counts == 0).nonzero().squeeze(1).tolist()]
        some = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise ValueError(f"no row is labelled {some}: every class needs at least one label")


def check_unlabelled(data: PartiallyLabelled) -> None:
    """Raise ValueError unless there is a label to infer."""
    if len(data.unlabelled_rows) == 0:
        raise ValueError("there are no unlabelled rows: every label is given already")


def check_batch(B: int, rows: int, kind: str) -> None:
    """Raise ValueError unless 1 ≤ B ≤ the number of rows."""
    if not 1 <= B <= rows:
        raise ValueError(
            f"a batch of {B} {kind} rows is impossible: there are {rows}, "
            f"so the batch size must be 1 to {rows}"
        )
