"""A finished run as its files tell it: run.json and labels.csv."""

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from saas_ssl.runs.files import (
    ESTIMATOR_FILE,
    FILES,
    LABELS_FILE,
    POSTERIOR_FILE,
    REVIEW_FILE,
    RUN_FILE,
)
from saas_ssl.sources.finding import ARCHIVES, find
from saas_ssl.sources.source import Source
from saas_ssl.sources.wording import shown, some
from saas_ssl.trust.decisions import ACCEPT, LabelRow

NUMBERS = frozenset(name for name, kind in LabelRow.__annotations__.items() if kind is float)
"""The columns of labels.csv that are not text."""
_NEEDED = ("id", "label", "probability", "source", "decision")


class _Request(BaseModel):
    data: str
    labels: str | None = None


class _Data(BaseModel):
    classes: list[str]
    in_shape: list[int]


class _Record(BaseModel):
    """What run.json must tell."""

    request: _Request
    data: _Data
    results: dict[str, object] | None


@dataclass(frozen=True)
class Labels:
    """labels.csv, and what run.json says of its rows."""

    run: Path
    data: str  # the spec of the data
    classes: Sequence[str]
    has_images: bool
    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]  # by the columns; numbers as such, or none


def check_finished(run: Path, labels: bool) -> None:
    """Raise ValueError unless the run is finished; a saved estimator will do if it has no labels
    to give.
    """
    is_estimator = (run / ESTIMATOR_FILE).is_file() and not (run / RUN_FILE).exists()
    if not labels and is_estimator:
        return
    if _record(run).results is None:
        raise ValueError(f"{run} is not finished: saas status tells where it is")
    if labels and not (run / LABELS_FILE).is_file():
        raise ValueError(f"{run} has no {LABELS_FILE}")


def read_labels(run: Path, data: str | None = None, accepted: bool = False) -> Labels:
    """All rows, or those that need no review; `data` is where the data are now, if they moved."""
    record = _record(run)
    path = run / LABELS_FILE
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            rows, columns = list(map(_typed, reader)), list(reader.fieldnames or ())
    except (csv.Error, ValueError):
        raise _broken(path) from None
    known = set(record.data.classes)
    if not set(_NEEDED) <= set(columns) or not all(
        row["label"] in known and row["probability"] is not None for row in rows
    ):
        raise _broken(path)
    return Labels(
        run,
        data or record.request.data,
        record.data.classes,
        len(record.data.in_shape) == 3,
        columns,
        [row for row in rows if row["decision"] == ACCEPT or not accepted],
    )


def typed_rows(labels: Labels) -> list[LabelRow]:
    """The rows of labels.csv with all that this version writes."""
    missing = [name for name in LabelRow._fields if name not in labels.columns]
    if missing:
        raise ValueError(
            f"{labels.run / LABELS_FILE} has no column {missing[0]!r}: it is of an earlier "
            "version; label the data again"
        )
    return [
        LabelRow(**{name: row[name] for name in LabelRow._fields})._replace(
            runner_up_probability=row["runner_up_probability"] or 0.0
        )
        for row in labels.rows
    ]


def source_of(labels: Labels) -> Source:
    """The data of a run, found again; every row of the labels is known to be there."""
    try:
        source = find(labels.data)
    except ValueError as error:
        raise ValueError(
            f"the data of {labels.run} are not found ({error}): go where the run was started, "
            "or say with --data where they are"
        ) from None
    missing = sorted({row["id"] for row in labels.rows} - set(source.ids))
    if missing:
        raise ValueError(
            f"{labels.data} has no {some([shown(id_) for id_ in missing])}, which {labels.run} "
            "labels: say with --data where its data are"
        )
    return source


def tensor_of(run: Path, name: str, rows: int) -> Tensor:
    """One of the tensors in posterior.safetensors that have a number for each row of the labels."""
    path = run / POSTERIOR_FILE
    try:
        with safe_open(path, "pt") as tensors:
            found: Tensor = tensors.get_tensor(name)
    except (SafetensorError, OSError):
        raise ValueError(
            f"{path} has no {name}: it is broken, or of an earlier version; label the data again"
        ) from None
    if found.shape != (rows,):
        raise ValueError(f"{path} is broken: it does not fit the labels of the run")
    return found


def protected_files(run: Path, data: str | None) -> frozenset[Path]:
    """What nothing may replace: the files of the run, and the data and labels it was made of."""
    files = {run.resolve() / name for name in (*FILES, REVIEW_FILE)}
    specs = [data]
    if (run / RUN_FILE).is_file():
        request = _record(run).request
        specs += [request.data, request.labels]
    return frozenset(files.union(*(_places_of(spec) for spec in specs if spec)))


def _places_of(spec: str) -> set[Path]:
    """Where the data are on the disk, if they are there."""
    kind, _, rest = spec.partition(":")
    if kind == "digits":
        return set()
    return {Path(os.path.expanduser(rest if kind in ARCHIVES and rest else spec)).resolve()}


def _typed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its numbers as numbers."""
    if None in row or None in row.values():
        raise ValueError("more or fewer cells than columns")
    return {
        name: (_share(cell) if cell else None) if name in NUMBERS else cell
        for name, cell in row.items()
    }


def _share(text: str) -> float:
    if not 0.0 <= (share := float(text)) <= 1.0:
        raise ValueError("not a probability")
    return share


def _record(run: Path) -> _Record:
    path = run / RUN_FILE
    if not path.is_file():
        raise ValueError(f"{run} is not a finished run: it has no {RUN_FILE}")
    try:
        return _Record.model_validate_json(path.read_bytes())
    except ValidationError:
        raise _broken(path) from None


def _broken(path: Path) -> ValueError:
    return ValueError(f"{path} is broken: it is not what saas label writes")
