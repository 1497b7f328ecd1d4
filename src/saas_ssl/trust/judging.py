"""How far the labels can be trusted: probabilities, expected accuracy, and what looks wrong."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator
from torch import Tensor

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.runs.labels import ACCEPT_FROM, Suspect
from saas_ssl.training.held_out import Evidence
from saas_ssl.trust.calibration import (
    Calibration,
    accuracy_interval,
    calibration_error,
    fit_calibration,
    reliability,
)

FEW_LABELS = 3  # in a class: with fewer, an interval is little more than a guess
_DISCOUNT = 4  # of evidence where labels are so few
_TIMES_AS_PROBABLE, _MISTAKEN = 4.0, 0.03  # another class, and a mistake: a suspected label
_SLOW, _ENOUGH_KNOWN = 0.05, 40  # share of known rows that are called slow, and how many it takes
_SHIFTED, _CHANCE = 0.1, 0.01  # distance between class shares, and how seldom chance explains it


class Scrutiny(BaseModel):
    """How labels are checked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accept: float = Field(default=ACCEPT_FROM, gt=0, le=1)  # labels of at least this probability
    label_folds: int = Field(default=5, ge=0, le=1000)  # of given labels to leave out; 0: none

    @field_validator("label_folds")
    @classmethod
    def _check(cls, folds: int) -> int:
        if folds == 1:
            raise ValueError("one fold would leave out all labels: give 0, or at least 2")
        return folds


@dataclass(frozen=True)
class Trust:
    """What can be said of the labels, from the scores of both kinds of rows."""

    p_u: Tensor  # (N_u, K) calibrated probabilities of the unlabelled rows
    p_l: Tensor  # (N_l, K) those of the labelled rows when left out; NaN where they never were
    outliers: Tensor  # (N_u,) whether a row looks like none of the classes
    strangeness: Tensor  # (N_u,) from 0 to 1: how little a row looks like its class
    suspects: Mapping[int, Suspect]  # given labels that look wrong, by the number of the row
    evidence: tuple[Tensor, Tensor]  # probability and rightness of labels that were left out
    calibration: Calibration


def judge(
    data: PartiallyLabelled, inferred: Tensor, seen: Evidence, f_supervised: Tensor, accept: float
) -> Trust:
    """Everything that follows from the scores.

    `data` are the training rows, `f_supervised` (N_u, K) the outputs of the supervised baseline on
    the unlabelled ones.
    """
    y = data.y[data.labelled_rows]
    # Networks of the first outer iteration are unlike later ones, and count only without those.
    used = seen.at >= (1 if (seen.at > 0).any() else 0)
    calibration = fit_calibration(seen.s_l[used], y[used])
    p_u, p_l = calibration.probabilities(seen.s_u), torch.full(seen.s_l.shape, torch.nan)
    left_out = seen.at >= 0
    p_l[left_out] = calibration.probabilities(seen.s_l[left_out])
    best = p_l[used].max(dim=1)
    strangeness = _strangeness(inferred, seen.s_early, f_supervised)
    return Trust(
        p_u,
        p_l,
        _outliers(strangeness, seen.s_once, seen.s_l[used])
        & (_of(p_u, inferred).double() < accept),
        strangeness,
        _suspects(p_l, y, data.labelled_rows, calibration.mistaken(seen.s_l, y)),
        (best.values, best.indices == y[used]),
        calibration,
    )


def _of(p: Tensor, labels: Tensor) -> Tensor:
    """The entry of each row that belongs to its label."""
    return p.gather(1, labels[:, None]).squeeze(1)


def _strangeness(inferred: Tensor, s_early: Tensor, f_supervised: Tensor) -> Tensor:
    """The mean of two ranks: slow to learn at first, and improbable by the given labels alone.

    Later outer iterations learn any row under the label that the first ones gave it.
    """
    ranks = [
        _of(score, inferred).argsort(stable=True).argsort() for score in (s_early, f_supervised)
    ]
    return 1.0 - (ranks[0] + ranks[1]) / (2.0 * max(1, len(inferred) - 1))


def _outliers(strangeness: Tensor, s_once: Tensor, s_known: Tensor) -> Tensor:
    """The strangest rows, as many as are slow under every class beyond what is to be expected.

    Known rows are given ones that were left out; a few cannot tell. Of n such rows, another of
    their kind is slower than the k-th slowest with probability k/(n + 1), however they are spread,
    give or take √k/(n + 1), which is granted as well.
    """
    outliers, n = torch.zeros(len(s_once), dtype=torch.bool), len(s_known)
    if n >= _ENOUGH_KNOWN:
        k = int(_SLOW * (n + 1))
        line = s_known.max(dim=1).values.sort().values[k - 1]
        expected = len(s_once) * (k + math.sqrt(k)) / (n + 1)
        beyond = int((s_once < line).sum() - expected)
        outliers[strangeness.argsort(descending=True, stable=True)[: max(0, beyond)]] = True
    return outliers


def _suspects(p_l: Tensor, y: Tensor, rows: Tensor, mistaken: Tensor) -> dict[int, Suspect]:
    """Given labels that another class beats by far where the label was left out.

    Where scores are often wrong that alone says little of a label: a mistake must be likely, too.
    """
    own = _of(p_l, y)
    best = p_l.max(dim=1)  # NaN compares as false
    beaten = best.values > _TIMES_AS_PROBABLE * own
    marked = (beaten & (mistaken > _MISTAKEN)).nonzero().squeeze(1).tolist()
    return {
        int(rows[i]): Suspect(float(own[i]), int(best.indices[i]), float(best.values[i]))
        for i in marked
    }


def doubts(trust: Trust, data: PartiallyLabelled, inferred: Tensor) -> Tensor:
    """(N,) how probable it is that a label is wrong; of given ones that are not suspected, 0."""
    u = torch.zeros(len(data.y))
    u[data.unlabelled_rows] = 1.0 - _of(trust.p_u, inferred)
    for row, suspect in trust.suspects.items():
        u[row] = 1.0 - suspect.probability
    return u


def decisions(trust: Trust, inferred: Tensor, accept: float) -> dict[str, int]:
    """How many of the inferred labels are accepted, to be reviewed, and of outliers."""
    accepted = int((_of(trust.p_u, inferred).double() >= accept).sum())
    outliers = int(trust.outliers.sum())
    review = len(inferred) - accepted - outliers
    return {"accepted": accepted, "review": review, "outliers": outliers}


def in_numbers(
    trust: Trust, data: PartiallyLabelled, inferred: Tensor, accept: float
) -> dict[str, Any]:
    """What run.json says of it; `data` are all rows, but without labels that are no fair sample."""
    own = _of(trust.p_u, inferred).double()
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
    from scipy.stats import chisquare  # slow to import

    K = data.n_classes
    given = torch.bincount(data.y[data.labelled_rows], minlength=K).double()
    if not given.any():
        return None
    shares = (torch.bincount(inferred, minlength=K).double() + 0.5) / (len(inferred) + 0.5 * K)
    distance = 0.5 * (given / given.sum() - shares).abs().sum().item()
    chance = float(chisquare(given.numpy(), (shares * given.sum()).numpy()).pvalue)
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
    own, raw = (_of(p, inferred) for p in (trust.p_u, f_u))
    right = inferred == truth
    accepted = own >= accept
    return {
        "calibration_error": calibration_error(own, right),
        "softmax_calibration_error": calibration_error(raw, right),
        "accepted_accuracy": right[accepted].double().mean().item() if accepted.any() else None,
        "reliability": [asdict(b) for b in reliability(own, right)],
    }


def all_probabilities(trust: Trust, data: PartiallyLabelled, labelled: Tensor) -> Tensor:
    """(N, K) in the order of labels.csv; NaN for given labels that were never left out.

    `labelled` are the labelled training rows.
    """
    p = torch.full((len(data.y), data.n_classes), torch.nan)
    p[data.unlabelled_rows] = trust.p_u
    p[labelled] = trust.p_l
    return p[data.rows]
