"""What `saas compare` does: many methods on the same labelled sets, with the same budget."""

import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from itertools import product
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from saas_ssl.budget import seconds_of
from saas_ssl.checkpoints import write_safely
from saas_ssl.data.partially_labelled import UNLABELLED
from saas_ssl.data.source import counted
from saas_ssl.experiments.cell import (
    Conditions,
    begin_worker,
    cell_settings,
    run_cell,
)
from saas_ssl.experiments.table import ERRORS, as_csv, as_markdown, table
from saas_ssl.labelling import Prepared, found, read_all, setting, shared_rows
from saas_ssl.methods import METHODS
from saas_ssl.methods.fitting import as_told, check_method
from saas_ssl.networks import named_factory
from saas_ssl.progress import counting
from saas_ssl.runs import hardware, locked, package_versions, versions

PLAN_FILE, RESULTS_FILE, CSV_FILE, TABLE_FILE, PLOT_FILE = (
    *("comparison.json", "results.json", "results.csv", "comparison.md"),
    "comparison.png",
)
CELLS, _LOCK, _CACHE = "cells", "lock", ".saas-cache"
_OURS = frozenset({PLAN_FILE, RESULTS_FILE, CSV_FILE, TABLE_FILE, PLOT_FILE, CELLS})
_LONG = ("history", "labelled_rows")  # of a cell; only its own file has them

Cell = tuple[str, int]
"""A method and a seed."""


def budget_of(text: str) -> dict[str, float]:
    """150k, 1M or 300000 image passes, or a time such as 90s or 20m."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kM]?)(?:\s*passes)?", text.strip())
    if match is not None and float(match[1]) > 0:
        return {"passes": float(match[1]) * {"": 1, "k": 1e3, "M": 1e6}[match[2]]}
    try:
        return {"seconds": seconds_of(text)}
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a number of image passes such as 150k or 1M, nor a time such as "
            "90s or 20m"
        ) from None


def methods_of(text: str) -> list[str]:
    """Names separated by commas, or all."""
    if text.strip() == "all":
        return list(METHODS)
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("name the methods to compare, or all of them: --methods all")
    for name in names:
        check_method(name)
    return names


def given_of(texts: Sequence[str], methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """METHOD.NAME=VALUE for one method, NAME=VALUE for all that have such a setting."""
    given: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, value = setting(text)
        method, dot, own = name.partition(".")
        if dot:
            check_method(method)
            given.setdefault(method, {})[own] = value
            continue
        concerned = [m for m in methods if name in METHODS[m].settings.model_fields]
        if not concerned:
            raise ValueError(f"none of these methods has a setting {name!r}")
        for method in concerned:
            given.setdefault(method, {})[name] = value
    return given


def compare_into(
    conditions: Conditions,
    methods: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    workers: int,
    console: Console,
    overwrite: bool = False,
) -> None:
    """Run the cells that are missing in `out`, and write and print the tables."""
    torch.set_num_threads(conditions.threads)
    if conditions.network is not None:
        named_factory(conditions.network)
    _check_target(out)
    cache = out.absolute().parent / _CACHE
    all_ = _read(conditions, seeds[0], cache, console)
    if all_.truth.test is None and all_.truth.unlabelled is None:
        raise ValueError(
            "there is nothing to measure by: give --test, or --keep-labels to hide known labels"
        )
    plan = {
        **conditions.model_dump(mode="json"),
        "versions": package_versions(),
        "fingerprint": _fingerprint(all_),
    }
    settings = {m: as_told(cell_settings(conditions, m, all_)) for m in methods}
    # Seed by seed: whenever it is interrupted, the methods have about as many.
    wanted = [(method, seed) for seed, method in product(seeds, methods)]
    with _opened(out, overwrite, plan):
        done = _finished(out, settings)
        _announce(console, conditions, all_, len(methods), len(seeds), out, len(done))
        try:
            failures = _fill(conditions, wanted, done, out, plan, cache, workers, console)
        except (KeyboardInterrupt, SystemExit):
            console.print("Stopped. The same command goes on with what is missing.")
            raise
        if done:
            _write_results(out, plan, list(done.values()))
            _write_plot(out, conditions, list(done.values()))
    if done:
        console.print()
        console.print(as_markdown([done[cell] for cell in sorted(done)]), end="")
        console.print(f"\n{out} has the numbers of each run, the table and a plot.")
    if failures:
        raise ValueError(f"{counted(len(failures), 'cell')} failed, the first: {failures[0]}")


def _fingerprint(all_: Prepared) -> str:
    """Of all rows and of the test data; which labels are kept is a matter of the seed."""
    rows = all_.data.with_labels(torch.full_like(all_.data.y, UNLABELLED))
    test = "" if all_.truth.test is None else all_.truth.test.fingerprint()
    return sha256(f"{rows.fingerprint()} {test}".encode()).hexdigest()


def _fill(
    conditions: Conditions,
    wanted: Sequence[Cell],
    done: dict[Cell, dict[str, Any]],
    out: Path,
    plan: dict[str, Any],
    cache: Path,
    workers: int,
    console: Console,
) -> list[str]:
    """Run the cells that are not done yet, and say why some failed."""
    missing, failures = [cell for cell in wanted if cell not in done], []
    with counting(console, "cells", len(wanted)) as progress:
        progress(len(wanted) - len(missing))
        for result in _results(conditions, missing, cache, workers):
            cell = (result["method"], result["seed"])
            console.print(_in_words(result))
            if "failure" in result:
                failures.append(_in_words(result))
                continue
            done[cell] = result
            write_safely(_cell_file(out, cell), _as_json(result))
            _write_results(out, plan, list(done.values()))
            progress(sum(cell in done for cell in wanted))
    return failures


def _read(conditions: Conditions, seed: int, cache: Path, console: Console) -> Prepared:
    """The data, with a bar while images are decoded; the cells find them in the cache."""
    source, test = found(conditions.request)
    with counting(console, "rows to read", len(source.ids)) as progress:
        return read_all(conditions.request, source, test, seed, cache, progress)


def _results(
    conditions: Conditions, cells: Sequence[Cell], cache: Path, workers: int
) -> Iterator[dict[str, Any]]:
    """The results of these cells as they come, so many at a time."""
    if workers == 1:
        yield from (_attempt(conditions, cell, cache) for cell in cells)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), begin_worker) as pool:
        try:
            jobs = [pool.submit(_attempt, conditions, cell, cache) for cell in cells]
            for job in as_completed(jobs):
                yield job.result()
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


def _attempt(conditions: Conditions, cell: Cell, cache: Path) -> dict[str, Any]:
    """The result of a cell, or why there is none: others may still succeed."""
    try:
        return run_cell(conditions, *cell, cache)
    except ValueError as error:
        return {"method": cell[0], "seed": cell[1], "failure": str(error)}


def _check_target(out: Path) -> None:
    """Raise ValueError unless a comparison may be written to `out`, or gone on with."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise ValueError(f"{out} is not a folder: choose another --out")
    names = {path.name.removesuffix(".partial") for path in out.iterdir()} if out.exists() else ()
    if foreign := sorted(set(names) - _OURS):
        raise ValueError(
            f"{out} holds {foreign[0]}, which no comparison has written: choose another --out"
        )


@contextmanager
def _opened(out: Path, overwrite: bool, plan: dict[str, Any]) -> Iterator[None]:
    """The folder, for this process alone, with a plan that is the one it was begun with."""
    (out / CELLS).mkdir(parents=True, exist_ok=True)
    with locked(out / CELLS / _LOCK, out):
        if overwrite:
            for path in (out / CELLS).glob("*.json"):
                path.unlink()
        elif any((out / CELLS).glob("*.json")):
            _check_same(out, plan)
        write_safely(out / PLAN_FILE, _as_json(plan))
        yield


def _check_same(out: Path, plan: dict[str, Any]) -> None:
    try:
        before = json.loads((out / PLAN_FILE).read_text(encoding="utf-8"))
        different = [name for name in plan if before.get(name) != plan[name]]
    except (OSError, ValueError, AttributeError):
        raise ValueError(f"{out / PLAN_FILE} is broken: give --overwrite to begin anew") from None
    if different:
        name = different[0]
        raise ValueError(
            f"{out} holds a comparison with another {name} ({_short(before.get(name))}, not "
            f"{_short(plan[name])}): choose another --out, or give --overwrite to begin anew"
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def _finished(out: Path, settings: dict[str, dict[str, Any]]) -> dict[Cell, dict[str, Any]]:
    """The cells that are there, of these and other methods; what is not whole does not count."""
    found: dict[Cell, dict[str, Any]] = {}
    for path in sorted((out / CELLS).glob("*.json")):
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            method, seed, own = result["method"], int(result["seed"]), result["settings"]
        except (ValueError, KeyError, TypeError):
            continue
        now = settings.get(method, own)
        if now != own:
            name = next(n for n in {**now, **own} if now.get(n) != own.get(n))
            raise ValueError(
                f"{path} was made with {name} = {own.get(name)}, not {now.get(name)}: choose "
                "another --out, or give --overwrite to begin anew"
            )
        found[method, seed] = result
    return found


def _cell_file(out: Path, cell: Cell) -> Path:
    return out / CELLS / f"{cell[0]}-{cell[1]}.json"


def _write_results(out: Path, plan: dict[str, Any], results: list[dict[str, Any]]) -> None:
    results = sorted(results, key=lambda result: (result["seed"], result["method"]))
    brief = [
        {k: v for k, v in result.items() if k not in _LONG}
        | {"labels": sha256(repr(result["labelled_rows"]).encode()).hexdigest()[:16]}
        for result in results
    ]
    record = {
        "conditions": plan,
        "versions": versions(),
        "hardware": hardware(),
        "cells": brief,
        **{error: [asdict(row) for row in table(results, error)] for error in ERRORS},
    }
    write_safely(out / RESULTS_FILE, _as_json(record))
    write_safely(out / CSV_FILE, as_csv(results).encode())
    write_safely(out / TABLE_FILE, as_markdown(results).encode())


def _write_plot(out: Path, conditions: Conditions, results: list[dict[str, Any]]) -> None:
    from saas_ssl.experiments.plots import bars  # heavy: only where it is needed

    error = next(error for error in ERRORS if table(results, error))
    request = conditions.request
    title = f"{request.data.rstrip('/').rpartition('/')[2]}: {_budget_in_words(conditions.budget)}"
    write_safely(out / PLOT_FILE, bars(table(results, error), title, ERRORS[error]))


def _announce(
    console: Console,
    conditions: Conditions,
    all_: Prepared,
    methods: int,
    seeds: int,
    out: Path,
    done: int,
) -> None:
    data = all_.data
    console.print(
        f"{conditions.request.data}: {len(data.labelled_rows):,} labelled, "
        f"{len(data.unlabelled_rows):,} unlabelled; {counted(methods, 'method')} on "
        f"{counted(seeds, 'labelled set')}, {_budget_in_words(conditions.budget)} each"
    )
    if done:
        console.print(f"{counted(done, 'cell')} of {out} need not be repeated")
    if all_.truth.test is not None and (again := shared_rows(all_.truth.test, data)):
        console.print(f"Beware: {again:,} of the test rows are among the data, too.")


def _budget_in_words(budget: dict[str, float]) -> str:
    if "seconds" in budget:
        return f"{budget['seconds']:g} s"
    return f"{budget['passes']:,.0f} image passes"


def _in_words(result: dict[str, Any]) -> str:
    place = f"{result['method']}, seed {result['seed']}"
    if "failure" in result:
        return f"{place}: {result['failure']}"
    errors = [
        f"{label} {100 * result[error]:.2f} %"
        for error, label in ERRORS.items()
        if result[error] is not None
    ]
    return f"{place}: {', '.join(errors)}; {result['passes']:,} passes in {result['seconds']:.0f} s"


def _as_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()
