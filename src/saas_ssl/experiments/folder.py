"""A folder of cells, one JSON file each: what is there is not repeated, whoever was interrupted."""

import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from rich.console import Console

from saas_ssl.experiments.worker import begin_worker
from saas_ssl.progress.display import counting
from saas_ssl.runs.checkpoints import write_safely
from saas_ssl.runs.directory import locked

CELLS, CACHE, _LOCK = "cells", ".saas-cache", "lock"

Cell = tuple[str, int]
"""A method or arm, and a seed."""

Result = dict[str, Any]
Attempt = Callable[[Cell], Result]
"""Runs a cell, in any process; a result with a `failure` says why there is none."""


def cache_beside(out: Path) -> Path:
    """Where decoded images are kept for the next command."""
    return out.absolute().parent / CACHE


def check_target(out: Path, files: Collection[str], what: str) -> None:
    """Raise ValueError unless `out` is a folder of ours, or free."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise ValueError(f"{out} is not a folder: choose another --out")
    names = {path.name.removesuffix(".partial") for path in out.iterdir()} if out.exists() else ()
    if foreign := sorted(set(names) - {*files, CELLS}):
        raise ValueError(
            f"{out} holds {foreign[0]}, which no {what} has written: choose another --out"
        )


@contextmanager
def opened(
    out: Path, overwrite: bool, plan: Mapping[str, Any], plan_file: str, what: str
) -> Iterator[None]:
    """The folder, for this process alone, with a plan that is the one it was begun with."""
    (out / CELLS).mkdir(parents=True, exist_ok=True)
    with locked(out / CELLS / _LOCK, out):
        begun = [path for path in (out / CELLS).iterdir() if path.name != _LOCK]
        if overwrite:
            for path in begun:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif begun:
            _check_same(out, plan, plan_file, what)
        write_safely(out / plan_file, as_json(plan))
        yield


def _check_same(out: Path, plan: Mapping[str, Any], plan_file: str, what: str) -> None:
    try:
        before = json.loads((out / plan_file).read_text(encoding="utf-8"))
        different = [name for name in plan if before.get(name) != plan[name]]
    except (OSError, ValueError, AttributeError):
        raise ValueError(f"{out / plan_file} is broken: give --overwrite to begin anew") from None
    if different:
        name = different[0]
        raise ValueError(
            f"{out} holds a {what} with another {name} ({_short(before.get(name))}, not "
            f"{_short(plan[name])}): choose another --out, or give --overwrite to begin anew"
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def finished(out: Path, key: str) -> dict[Cell, Result]:
    """The cells that are there by their `key` and seed; what is not whole does not count."""
    found: dict[Cell, Result] = {}
    for path in sorted((out / CELLS).glob("*.json")):
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            found[str(result[key]), int(result["seed"])] = result
        except (ValueError, KeyError, TypeError):
            continue
    return found


def cell_file(out: Path, cell: Cell) -> Path:
    """Where the result of a cell is written."""
    return out / CELLS / f"{cell[0]}-{cell[1]}.json"


def fill(
    attempt: Attempt,
    wanted: Sequence[Cell],
    done: dict[Cell, Result],
    out: Path,
    workers: int,
    console: Console,
    in_words: Callable[[Cell, Result], str],
    after: Callable[[], None],
) -> list[str]:
    """Run the cells that are not `done` yet, and say why some failed.

    Each result is written down at once, and `after` it whatever depends on all of them.
    """
    missing, failures = [cell for cell in wanted if cell not in done], []
    with counting(console, "cells", len(wanted)) as progress:
        progress(len(wanted) - len(missing))
        for cell, result in _results(attempt, missing, workers):
            console.print(in_words(cell, result))
            if "failure" in result:
                failures.append(in_words(cell, result))
                continue
            done[cell] = result
            write_safely(cell_file(out, cell), as_json(result))
            after()
            progress(sum(cell in done for cell in wanted))
    return failures


def _results(
    attempt: Attempt, cells: Sequence[Cell], workers: int
) -> Iterator[tuple[Cell, Result]]:
    """The results of these cells as they come, so many at a time."""
    if workers == 1:
        yield from ((cell, attempt(cell)) for cell in cells)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), begin_worker) as pool:
        try:
            jobs = {pool.submit(attempt, cell): cell for cell in cells}
            for job in as_completed(jobs):
                yield jobs[job], job.result()
        except BrokenProcessPool:
            raise ValueError(
                "a worker has ended unexpectedly, maybe for lack of memory; the same command goes "
                "on with what is missing"
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in active_children():
                worker.terminate()
            raise


def as_json(value: Any) -> bytes:
    """For people and programs."""
    return (json.dumps(value, indent=1) + "\n").encode()
