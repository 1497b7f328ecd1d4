"""Where an export goes: a file or a folder, whole or not at all, over nothing but its own."""

import json
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from saas_ssl.runs.directory import new_folder_beside
from saas_ssl.runs.tables import written_beside

MARKER = ".saas-export.json"
"""In a folder that an export wrote, the list of its files: only those are ever removed."""


def check_file(
    out: Path,
    suffix: str,
    format_: str,
    overwrite: bool,
    protected: Collection[Path],
    option: str = "--out",
) -> None:
    """Raise ValueError unless a file may be written there, where an option has said."""
    if out.suffix.lower() != suffix:
        raise ValueError(f"{out} must end in {suffix} for {format_}")
    if out.is_dir():
        raise ValueError(f"{out} is a folder")
    if out.resolve() in protected:
        raise ValueError(f"{out} is a file of the run itself, or its data: choose another {option}")
    if (out.exists() or out.is_symlink()) and not overwrite:
        raise ValueError(f"{out} exists: choose another {option}, or give --overwrite")


def check_folder(out: Path, overwrite: bool) -> None:
    """Raise ValueError unless a folder may be written there."""
    if not out.exists() and not out.is_symlink():
        return
    if not overwrite:
        raise ValueError(f"{out} exists: choose another --out, or give --overwrite")
    try:
        own = set(json.loads((out / MARKER).read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        own = None
    if own is None or out.is_symlink():
        raise ValueError(f"{out} is not what an export has written, so it is not overwritten")
    foreign = next((name for name in _files_below(out) if name not in own | {MARKER}), None)
    if foreign is not None:
        raise ValueError(f"{out} holds {foreign}, which no export has written: move it away first")


@contextmanager
def new_file(out: Path) -> Iterator[Path]:
    """A file to write that becomes `out` if the block ends well."""
    with _parents_of(out), written_beside(out) as partial:
        yield partial


@contextmanager
def new_folder(out: Path, data: Collection[Path]) -> Iterator[Path]:
    """An empty folder to fill that becomes `out`, or replaces it, if the block ends well.

    It may neither hold the data nor be among them.
    """
    place = out.resolve()
    for path in data:
        if place == path or path in place.parents or place in path.parents:
            raise ValueError(f"{out} would mix with the run or its data: choose another --out")
    with _parents_of(out):
        partial = new_folder_beside(out, "partial")
        try:
            yield partial
            (partial / MARKER).write_text(json.dumps({"files": sorted(_files_below(partial))}))
            _put_in_place(partial, out)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _put_in_place(partial: Path, out: Path) -> None:
    if not out.exists():
        partial.rename(out)
        return
    replaced = new_folder_beside(out, "replaced")
    out.rename(replaced)  # onto an empty folder
    try:
        partial.rename(out)
    except BaseException:
        replaced.rename(out)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


@contextmanager
def _parents_of(out: Path) -> Iterator[None]:
    """The folders above `out`: those that are made for it go away if the block fails."""
    missing = [parent for parent in out.absolute().parents if not parent.exists()]
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for parent in missing:
            with suppress(OSError):  # another process has put something there
                parent.rmdir()
        raise


def _files_below(folder: Path) -> Iterator[str]:
    """Files and links by their paths from the folder."""
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in (*files, *links):
            yield Path(place, name).relative_to(folder).as_posix()
