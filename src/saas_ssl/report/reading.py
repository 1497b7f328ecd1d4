"""What the report needs of the files of a run, row by row where they may be long."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, FiniteFloat, ValidationError
from torch import Tensor

from saas_ssl.sources.source import Skipped
from saas_ssl.trust.decisions import OUTLIER, REVIEW, LabelRow


class OuterIteration(BaseModel):
    """A line of metrics.jsonl that phase one wrote."""

    phase: Literal["one"]
    outer: int
    cumulative_loss: FiniteFloat
    changed: FiniteFloat
    unlabelled_accuracy: FiniteFloat | None = None


@dataclass(frozen=True)
class Columns:
    """labels.csv without its texts."""

    label: Tensor  # (N,) numbers of classes
    probability: Tensor  # (N,)
    given: Tensor  # (N,) whether the label was given
    suspected: Tensor  # (N,) whether a given label looks wrong
    outlier: Tensor  # (N,)


def outer_iterations(file: Path) -> list[OuterIteration]:
    """The lines of phase one; what is not whole is none."""
    found = list[OuterIteration]()
    for line in file.read_bytes().splitlines() if file.is_file() else []:
        try:
            found.append(OuterIteration.model_validate_json(line))
        except ValidationError:  # an epoch of another phase, or half a line
            continue
    return found


def label_rows(file: Path) -> Iterator[LabelRow]:
    """The rows of labels.csv, one by one."""
    with file.open(newline="", encoding="utf-8") as opened:
        lines = csv.reader(opened, strict=True)
        next(lines)
        for id_, label, p, source, decision, runner_up, p_2, reason in lines:
            yield LabelRow(id_, label, float(p), source, decision, runner_up, float(p_2), reason)


def columns(rows: Iterable[LabelRow], classes: Sequence[str]) -> Columns:
    """All rows as numbers."""
    number = {name: k for k, name in enumerate(classes)}
    label, probability, decided = list[int](), list[float](), list[tuple[bool, bool, bool]]()
    for row in rows:
        label.append(number[row.label])
        probability.append(row.probability)
        given = row.source == "given"
        decided.append((given, given and row.decision == REVIEW, row.decision == OUTLIER))
    marks = torch.tensor(decided, dtype=torch.bool).reshape(-1, 3)
    return Columns(
        torch.tensor(label, dtype=torch.int64),
        torch.tensor(probability, dtype=torch.float64),
        *marks.unbind(dim=1),
    )


def skipped_files(file: Path, most: int) -> tuple[list[Skipped], int]:
    """(The first lines of skipped.csv, how many there are)."""
    if not file.is_file():
        return [], 0
    with file.open(newline="", encoding="utf-8") as opened:
        lines = csv.reader(opened, strict=True)
        next(lines)
        first = [Skipped(*line) for line in islice(lines, most)]
        return first, len(first) + sum(1 for _ in lines)
