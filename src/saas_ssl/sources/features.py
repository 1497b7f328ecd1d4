"""CSV files: of paths to images, or of features."""

from array import array
from pathlib import Path

import torch

from saas_ssl.sources.folders import find_paths
from saas_ssl.sources.source import Source, class_names
from saas_ssl.sources.tables import Table, opened_table

_NOT_FEATURES = ("label", "id")
_ROW_NUMBERS = ("", "unnamed: 0")  # what pandas calls the column of its index


def find_csv(path: Path) -> Source:
    """With a column `path` a list of images, else numbers in every column but `label` and `id`."""
    with opened_table(path) as table:
        return _find_features(table) if table.column("path") is None else find_paths(table)


def _find_features(table: Table) -> Source:
    label_at, id_at = (table.column(name) for name in _NOT_FEATURES)
    features = [
        at
        for at, name in enumerate(table.columns)
        if at not in (label_at, id_at) and name.casefold() not in _ROW_NUMBERS
    ]
    if not features:
        raise ValueError(f"{table.path} has neither a column path nor columns of numbers")
    numbers, labels, ids = array("f"), list[str | None](), list[str]()
    for line, cells in table.rows:
        for at in features:
            try:
                numbers.append(float(cells[at]))
            except ValueError:
                raise ValueError(
                    f"{table.path}, line {line}: {cells[at]!r} in column "
                    f"{table.columns[at]!r} is not a number"
                ) from None
        labels.append(None if label_at is None else cells[label_at] or None)
        ids.append(str(len(ids)) if id_at is None else cells[id_at])
    if not ids:
        raise ValueError(f"{table.path} has no rows below its first line")
    x = torch.frombuffer(numbers, dtype=torch.float32).view(len(ids), len(features))
    names = [table.columns[at] for at in features]
    return Source(ids, labels, class_names(labels), x, features=names)
