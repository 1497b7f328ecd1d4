"""From scores to probabilities, and to given labels that look wrong."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator
from torch import Tensor

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.training.held_out import Evidence
from saas_ssl.trust.calibration import (
    Calibration,
    at_labels,
    fit_calibration,
)
from saas_ssl.trust.decisions import ACCEPT_FROM, Suspect
from saas_ssl.trust.outliers import outliers_among, strangeness_of

_TIMES_AS_PROBABLE, _MISTAKEN = 4.0, 0.03  # another class, and a mistake: a suspected label


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
    strangeness = strangeness_of(inferred, seen.s_early, f_supervised)
    return Trust(
        p_u,
        p_l,
        outliers_among(strangeness, seen.s_once, seen.s_l[used])
        & (at_labels(p_u, inferred).double() < accept),
        strangeness,
        _suspects(p_l, y, data.labelled_rows, calibration.mistaken(seen.s_l, y)),
        (best.values, best.indices == y[used]),
        calibration,
    )


def _suspects(p_l: Tensor, y: Tensor, rows: Tensor, mistaken: Tensor) -> dict[int, Suspect]:
    """Given labels that another class beats by far where the label was left out.

    Where scores are often wrong that alone says little of a label: a mistake must be likely, too.
    """
    own = at_labels(p_l, y)
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
    u[data.unlabelled_rows] = 1.0 - at_labels(trust.p_u, inferred)
    for row, suspect in trust.suspects.items():
        u[row] = 1.0 - suspect.probability
    return u


def all_probabilities(trust: Trust, data: PartiallyLabelled, labelled: Tensor) -> Tensor:
    """(N, K) in the order of labels.csv; NaN for given labels that were never left out.

    `labelled` are the labelled training rows.
    """
    p = torch.full((len(data.y), data.n_classes), torch.nan)
    p[data.unlabelled_rows] = trust.p_u
    p[labelled] = trust.p_l
    return p[data.rows]
