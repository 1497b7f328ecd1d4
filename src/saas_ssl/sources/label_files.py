"""Files of labels: which row has which label, and whether a review gave it."""

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from saas_ssl.sources.source import Source, class_names
from saas_ssl.sources.tables import Table, opened_table
from saas_ssl.sources.wording import shown, some

NAMES = ("path", "id")
"""The columns that may say which row is meant."""
REVIEWED = "reviewed"
"""In a column `source`: a person gave this label because the row was doubtful."""


class Given(NamedTuple):
    """What a line says of a row."""

    label: str | None
    line: int
    reviewed: bool


def read_label_table(table: Table, required: Collection[str] = ()) -> Mapping[str, Given]:
    """The name of a row -> what is said of it; other columns are none of our concern."""
    at = next((at for name in NAMES if (at := table.column(name)) is not None), None)
    missing = [name for name in required if table.column(name) is None]
    missing = ["path", *missing] if at is None else missing
    if at is None or missing:
        raise ValueError(
            f"{table.path} has no column {' and no column '.join(map(repr, missing))}: "
            f"its first line names {some([repr(name) for name in table.columns])}"
        )
    label_at, source_at = table.column("label"), table.column("source")
    labels = dict[str, Given]()
    for line, cells in table.rows:
        if not cells[at]:
            raise ValueError(f"{table.path}, line {line}: there is a label but no path")
        label = None if label_at is None else cells[label_at] or None
        reviewed = source_at is not None and cells[source_at].casefold() == REVIEWED
        enter(labels, cells[at], Given(label, line, reviewed), table.path)
    if not labels:
        raise ValueError(f"{table.path} has no rows below its first line")
    return labels


def enter(labels: dict[str, Given], id_: str, given: Given, path: Path) -> None:
    """Note a label; a second one for the same row must be the same."""
    earlier = labels.setdefault(id_, given)
    if earlier.label != given.label:
        raise ValueError(
            f"{path}: {shown(id_)} is labelled {earlier.label or 'unlabelled'!r} in line "
            f"{earlier.line} but {given.label or 'unlabelled'!r} in line {given.line}"
        )


def by_name(ids: Sequence[str]) -> dict[str, str]:
    """What a table may call a row -> its id: the cells of tables have no blanks around them."""
    return {same_text(id_).strip(): id_ for id_ in ids} | {same_text(id_): id_ for id_ in ids}


def relabelled(source: Source, path: Path) -> Source:
    """The same rows with the labels of a file: those that it does not name have none."""
    with opened_table(path) as table:
        labels = read_label_table(table, required=("label",))
    known, given, unknown = by_name(source.ids), dict[str, Given](), list[str]()
    for name, said in labels.items():
        id_ = known.get(same_text(name))
        if id_ is None:
            unknown.append(f"line {said.line} ({shown(name)})")
        else:
            enter(given, id_, said, path)
    if unknown:
        raise ValueError(f"{path} names rows that are not in the data: {some(unknown)}")
    found = [given[id_].label if id_ in given else None for id_ in source.ids]
    # Classes keep their order, which may mean something; new ones come behind.
    classes = [name for name in source.classes if name in set(found)]
    classes += [name for name in class_names(found) if name not in source.classes]
    return replace(source, labels=found, classes=classes, reviewed=rows_reviewed(source.ids, given))


def rows_reviewed(ids: Sequence[str], given: Mapping[str, Given]) -> frozenset[int]:
    """The numbers of the rows whose labels a review gave."""
    return frozenset(
        row
        for row, id_ in enumerate(ids)
        if id_ in given and given[id_].reviewed and given[id_].label is not None
    )


def same_text(name: str) -> str:
    """One form for names that look the same: macOS splits accents from their letters."""
    return unicodedata.normalize("NFC", name)
