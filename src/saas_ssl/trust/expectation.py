"""What run.json says of the labels: how many are accepted, and how many of them will be right."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.trust.calibration import accuracy_interval, at_labels, calibration_error, reliability
from saas_ssl.trust.judging import Trust

FEW_LABELS = 3  # in a class: with fewer, an interval is little more than a guess
_DISCOUNT = 4  # of evidence where labels are so few
_SHIFTED, _CHANCE = 0.1, 0.01  # distance between class shares, and how seldom chance explains it


def decision_counts(trust: Trust, inferred: Tensor, accept: float) -> dict[str, int]:
    """How many of the inferred labels are accepted, to be reviewed, and of outliers."""
    accepted = int((at_labels(trust.p_u, inferred).double() >= accept).sum())
    outliers = int(trust.outliers.sum())
    review = len(inferred) - accepted - outliers
    return {"accepted": accepted, "review": review, "outliers": outliers}


def in_numbers(
    trust: Trust, data: PartiallyLabelled, inferred: Tensor, accept: float
) -> dict[str, Any]:
    """What run.json says of it; `data` are all rows, but without labels that are no fair sample."""
    own = at_labels(trust.p_u, inferred).double()
    (said, right), accepted = trust.evidence, own >= accept
    given = torch.bincount(data.y[data.labelled_rows], minlength=data.n_classes)
    few = bool(given.min() < FEW_LABELS)
    return {
        "left_out": len(said),
        "left_out_right": int(right.sum()),
        "few_labels": few,
        "a": trust.calibration.a,
        "all": _expected(own, right, few),
        "accepted": _expected(own[accepted], right[said >= accept], few),
        "reliability": [asdict(b) for b in reliability(said, right)],
        "suspects": len(trust.suspects),
        "shift": class_shift(data, inferred),
    }


def _expected(p: Tensor, right: Tensor, few: bool) -> dict[str, float] | None:
    """The expected share of right labels, and an interval by those that were left out."""
    if len(p) == 0:
        return None
    estimate, weight = p.mean().item(), 1 / _DISCOUNT if few else 1.0
    low, high = accuracy_interval(weight * int(right.sum()), weight * len(right))
    return {"estimate": estimate, "low": min(low, estimate), "high": max(high, estimate)}


def class_shift(data: PartiallyLabelled, inferred: Tensor) -> dict[str, Any] | None:
    """The class whose share differs most, if the shares of given and inferred labels differ much.

    Much is a tenth of all rows, and more than chance explains with so few given labels.
    """
    from scipy.special import chdtrc  # what scipy.stats calls, which takes long to import

    K = data.n_classes
    given = torch.bincount(data.y[data.labelled_rows], minlength=K).double()
    if not given.any():
        return None
    shares = (torch.bincount(inferred, minlength=K).double() + 0.5) / (len(inferred) + 0.5 * K)
    distance = 0.5 * (given / given.sum() - shares).abs().sum().item()
    expected = shares * given.sum()
    chance = float(chdtrc(K - 1, ((given - expected).square() / expected).numpy().sum()))
    if distance <= _SHIFTED or chance >= _CHANCE:
        return None
    k = int((given / given.sum() - shares).abs().argmax())
    return {
        "class": data.classes[k],
        "given": float(given[k] / given.sum()),
        "inferred": float((inferred == k).double().mean()),
        "distance": distance,
    }


def measured(
    trust: Trust, f_u: Tensor, inferred: Tensor, truth: Tensor | None, accept: float
) -> dict[str, Any] | None:
    """Where the truth is known: calibration errors of the probabilities and of the raw softmax."""
    if truth is None:
        return None
    own, raw = (at_labels(p, inferred) for p in (trust.p_u, f_u))
    right = inferred == truth
    accepted = own >= accept
    return {
        "calibration_error": calibration_error(own, right),
        "softmax_calibration_error": calibration_error(raw, right),
        "accepted_accuracy": right[accepted].double().mean().item() if accepted.any() else None,
        "reliability": [asdict(b) for b in reliability(own, right)],
    }
