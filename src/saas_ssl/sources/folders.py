"""Folders of images, with class subfolders or a file of labels; and CSV files of paths."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from saas_ssl.images.pixels import EXTENSIONS
from saas_ssl.sources.label_files import (
    Given,
    by_name,
    enter,
    read_label_table,
    rows_reviewed,
    same_text,
)
from saas_ssl.sources.source import Skipped, Source, class_names, file_below, files_below, stamp_of
from saas_ssl.sources.tables import Table, opened_table
from saas_ssl.sources.wording import shown, some

UNLABELLED_FOLDERS = ("unlabeled", "unlabelled")


def find_folder(folder: Path, labels: Path | None = None) -> Source:
    """Images below a folder at any depth, labelled by a CSV file or by their first subfolder."""
    if labels is not None and not labels.is_file():
        raise ValueError(f"{labels} does not exist, or is not a file")
    ids, skipped = list[str](), list[Skipped]()
    for id_ in _files_below(folder):
        reason = _why_no_row(folder, id_)
        if reason is None:
            ids.append(id_)
        elif labels is None or not _same_file(folder / id_, labels):
            skipped.append(Skipped(id_, reason))
    if not ids:
        raise ValueError(f"there are no images below {folder} (known are {', '.join(EXTENSIONS)})")
    if labels is None:
        return _source(folder, ids, _folder_labels(ids), skipped)
    given = _file_labels(labels, folder, ids, skipped)
    found = [given[id_].label if id_ in given else None for id_ in ids]
    return _source(folder, ids, found, skipped, rows_reviewed(ids, given))


def find_paths(table: Table) -> Source:
    """A CSV file with the columns `path` (relative to its own folder) and `label`."""
    labels = dict[str, Given]()
    for name, given in read_label_table(table, required=("path",)).items():
        id_ = name if os.path.isabs(name) else _relative(name, table.path.parent)
        enter(labels, id_, given, table.path)
    folder = table.path.parent
    missing = [id_ for id_ in labels if not os.path.isfile(os.path.join(folder, id_))]
    if missing:
        raise ValueError(
            f"{table.path} names files that do not exist: "
            f"{some([f'line {labels[id_].line} ({shown(id_)})' for id_ in missing])}"
        )
    return _source(folder, list(labels), [given.label for given in labels.values()])


def _source(
    folder: Path,
    ids: Sequence[str],
    given: Sequence[str | None],
    skipped: Sequence[Skipped] = (),
    reviewed: frozenset[int] = frozenset(),
) -> Source:
    stamp = stamp_of(os.path.join(folder, id_) for id_ in ids)
    return Source(
        ids,
        given,
        class_names(given),
        files_below(folder, ids),
        stamp,
        skipped,
        image_at=file_below(folder, ids),
        reviewed=reviewed,
    )


def _files_below(folder: Path) -> Iterator[str]:
    """Every file that is not hidden, by its path from the folder, in order.

    Links to folders are followed, but not to a folder that they are in.
    """

    def refuse(error: OSError) -> None:
        raise ValueError(f"{error.filename} cannot be read: {error.strerror}")

    above = dict[str, frozenset[str]]()  # the real paths of a folder and of those above it
    for place, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        real, outer = os.path.realpath(place), above.get(os.path.dirname(place), frozenset())
        if real in outer:
            folders.clear()
            continue
        above[place] = outer | {real}
        if outer and {"run.json", "metrics.jsonl"} <= set(files):  # one of our run directories
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = Path(place).relative_to(folder).as_posix()
        before = "" if inside == "." else f"{inside}/"
        yield from (before + name for name in sorted(files) if not name.startswith("."))


def has_images(folder: Path) -> bool:
    """Whether any file below the folder has the name of an image."""
    return any(id_.lower().endswith(EXTENSIONS) for id_ in _files_below(folder))


def _same_file(file: Path, other: Path) -> bool:
    return file.exists() and file.samefile(other)


def _why_no_row(folder: Path, id_: str) -> str | None:
    if not id_.lower().endswith(EXTENSIONS):
        return "not an image of a known kind, by its name"
    if not os.path.isfile(os.path.join(folder, id_)):
        return "not a file that can be opened"
    try:
        id_.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    return None


def _folder_labels(ids: Sequence[str]) -> list[str | None]:
    """The first folder of each path; none at the top and in `unlabeled` or `unlabelled`."""
    parts = [id_.split("/") for id_ in ids]
    return [
        part[0] if len(part) > 1 and part[0].casefold() not in UNLABELLED_FOLDERS else None
        for part in parts
    ]


def _file_labels(
    path: Path, folder: Path, ids: Sequence[str], skipped: Sequence[Skipped]
) -> dict[str, Given]:
    """What a CSV file with the columns `path` and `label` says of the images."""
    with opened_table(path) as table:
        labels = read_label_table(table, required=("label",))
    known = by_name([*ids, *(row.id for row in skipped)])
    given, unknown = dict[str, Given](), list[str]()
    for name, said in labels.items():
        id_ = known.get(same_text(_relative(name, folder)))
        if id_ is None:
            unknown.append(f"line {said.line} ({shown(name)})")
        else:
            enter(given, id_, said, path)
    if unknown:
        raise ValueError(
            f"{path} names images that are not below {folder}: {some(unknown)}; "
            f"paths must be relative to {folder}"
        )
    return given


def _relative(name: str, folder: Path) -> str:
    """A path of a label file as an id: relative, with slashes, without ./ before it."""
    if os.path.isabs(name):
        return os.path.relpath(name, folder.absolute())
    return os.path.normpath(name.replace("\\", "/"))
