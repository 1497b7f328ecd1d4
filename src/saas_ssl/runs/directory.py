"""A run directory: who may write it, and the promise that nothing is lost."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import IO

from saas_ssl.runs.files import CHECKPOINT_FOLDER, FILES, REVIEW_FILE, RUN_FILE

_LOCK = "lock"


def is_stub(out: Path) -> bool:
    """Whether this is what a run leaves that was killed before it wrote anything."""
    if out.is_symlink() or not out.is_dir() or is_running(out):
        return False
    names = {path.name.removesuffix(".partial") for path in out.iterdir()}
    saved = any((out / CHECKPOINT_FOLDER).glob("*.json"))
    return (
        (out / CHECKPOINT_FOLDER / _LOCK).is_file()
        and names <= FILES
        and not (saved or (out / RUN_FILE).exists())
    )


def check_target(out: Path, overwrite: bool) -> None:
    """Raise ValueError unless a new run may be written to `out`."""
    if (not out.exists() and not out.is_symlink()) or is_stub(out):
        return
    if not overwrite:
        is_open = (out / RUN_FILE).is_file() and (out / CHECKPOINT_FOLDER).is_dir()
        resume = "--resume to continue it, or " if is_open else ""
        raise ValueError(f"{out} exists: choose another --out, or give {resume}--overwrite")
    # Never delete what no run has written.
    if out.is_symlink() or not (out / RUN_FILE).is_file():
        raise ValueError(f"{out} is not a run directory, so it is not overwritten")
    names = {path.name: path.name.removesuffix(".partial") for path in out.iterdir()}
    if REVIEW_FILE in names:
        raise ValueError(
            f"{out} holds the decisions of a review: write them to a file of labels with saas "
            f"review {out} --export, and move {REVIEW_FILE} away first"
        )
    foreign = sorted(name for name, whole in names.items() if whole not in FILES)
    if foreign:
        raise ValueError(f"{out} holds {foreign[0]}, which no run has written: move it away first")
    if is_running(out):
        raise ValueError(f"{out} is being written by another process")


@contextmanager
def new_run(out: Path, overwrite: bool = False) -> Iterator[Path]:
    """A new directory to write a run into; before any checkpoint, an error leaves all as it was.

    An earlier run that is to be replaced is kept aside until the new one is worth keeping.
    """
    check_target(out, overwrite)
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    replaced = None
    if is_stub(out):
        shutil.rmtree(out)
    if out.exists():
        replaced = new_folder_beside(out, "replaced")
        out.rename(replaced)  # onto an empty folder
    try:
        out.mkdir()
        (out / CHECKPOINT_FOLDER).mkdir()
        with locked(out / CHECKPOINT_FOLDER / _LOCK, out):
            yield out
            shutil.rmtree(out / CHECKPOINT_FOLDER)
    except BaseException:
        if not any((out / CHECKPOINT_FOLDER).glob("*.json")):
            shutil.rmtree(out, ignore_errors=True)
            if replaced is not None:
                replaced.rename(out)
        raise
    finally:
        if replaced is not None:
            shutil.rmtree(replaced, ignore_errors=True)


@contextmanager
def old_run(out: Path) -> Iterator[Path]:
    """The directory of a run that was interrupted, to go on with."""
    (out / CHECKPOINT_FOLDER).mkdir(exist_ok=True)
    with locked(out / CHECKPOINT_FOLDER / _LOCK, out):
        yield out
        shutil.rmtree(out / CHECKPOINT_FOLDER)
    for replaced in out.absolute().parent.glob(f".{out.name}.*.replaced"):
        shutil.rmtree(replaced, ignore_errors=True)  # by a run that was killed


@contextmanager
def locked(path: Path, out: Path) -> Iterator[None]:
    """Two processes never write the same `out`: one of them holds the lock at this path."""
    with path.open("w") as file:
        if not try_lock(file, exclusive=True):
            raise ValueError(f"{out} is being written by another process")
        yield


def is_running(out: Path) -> bool:
    """Whether a process is writing this run now."""
    try:
        with (out / CHECKPOINT_FOLDER / _LOCK).open() as file:
            return not try_lock(file, exclusive=False)
    except OSError:
        return False


def try_lock(file: IO[str] | IO[bytes], exclusive: bool) -> bool:
    """Whether the file could be locked, which lasts until it is closed."""
    try:
        import fcntl
    except ImportError:  # not a system that has such locks
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def new_folder_beside(out: Path, kind: str) -> Path:
    """An empty hidden folder on the same disk, to be renamed or removed."""
    folder = Path(mkdtemp(prefix=f".{out.name}.", suffix=f".{kind}", dir=out.absolute().parent))
    folder.chmod(0o777 & ~current_umask())  # mkdtemp's are for their owner alone
    return folder


def current_umask() -> int:
    """Which permissions new files do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def free_name(wanted: Path) -> Path:
    """`wanted`, or `wanted-2`, `wanted-3`, ...: the first that does not exist."""
    candidate, n = wanted, 1
    while candidate.exists():
        n += 1
        candidate = wanted.with_name(f"{wanted.name}-{n}")
    return candidate
