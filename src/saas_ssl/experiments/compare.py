"""What `saas compare` does: many methods on the same labelled sets, with the same budget."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from saas_ssl.algorithm.partially_labelled import UNLABELLED
from saas_ssl.experiments.cell import Conditions, cell_settings, run_cell
from saas_ssl.experiments.folder import (
    Cell,
    Result,
    as_json,
    cache_beside,
    cell_file,
    check_target,
    fill,
    finished,
    opened,
)
from saas_ssl.experiments.table import ERRORS, as_csv, as_markdown, table
from saas_ssl.labelling.request import Prepared, found, read_all, shared_rows
from saas_ssl.methods import METHODS
from saas_ssl.methods.fitting import as_told, check_method
from saas_ssl.progress.display import counting
from saas_ssl.runs.checkpoints import write_safely
from saas_ssl.runs.record import hardware, package_versions, versions
from saas_ssl.sources.wording import counted
from saas_ssl.training.choosing import setting
from saas_ssl.training.times import seconds_of
from saas_ssl.vision.networks import named_factory

PLAN_FILE, RESULTS_FILE, CSV_FILE, TABLE_FILE, PLOT_FILE = (
    *("comparison.json", "results.json", "results.csv", "comparison.md"),
    "comparison.png",
)
_OURS = frozenset({PLAN_FILE, RESULTS_FILE, CSV_FILE, TABLE_FILE, PLOT_FILE})
_LONG = ("history", "labelled_rows")  # of a cell; only its own file has them


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
    check_target(out, _OURS, "comparison")
    cache = cache_beside(out)
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
    with opened(out, overwrite, plan, PLAN_FILE, "comparison"):
        done = _finished(out, settings)
        _announce(console, conditions, all_, len(methods), len(seeds), out, len(done))
        try:
            failures = fill(
                partial(_attempt, conditions, cache),
                *(wanted, done, out, workers, console, _in_words),
                after=lambda: _write_results(out, plan, list(done.values())),
            )
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


def _read(conditions: Conditions, seed: int, cache: Path, console: Console) -> Prepared:
    """The data, with a bar while images are decoded; the cells find them in the cache."""
    source, test = found(conditions.request)
    with counting(console, "rows to read", len(source.ids)) as progress:
        return read_all(conditions.request, source, test, seed, cache, progress)


def _attempt(conditions: Conditions, cache: Path, cell: Cell) -> Result:
    """The result of a cell, or why there is none: others may still succeed."""
    try:
        return run_cell(conditions, *cell, cache)
    except ValueError as error:
        return {"failure": str(error)}


def _finished(out: Path, settings: dict[str, dict[str, Any]]) -> dict[Cell, Result]:
    """The cells that are there, of these and other methods; of other settings they are refused."""
    found = finished(out, "method")
    for cell, result in found.items():
        own: dict[str, Any] = result.get("settings", {})
        now = settings.get(cell[0], own)
        if now != own:
            name = next(n for n in {**now, **own} if now.get(n) != own.get(n))
            raise ValueError(
                f"{cell_file(out, cell)} was made with {name} = {own.get(name)}, not "
                f"{now.get(name)}: choose another --out, or give --overwrite to begin anew"
            )
    return found


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
    write_safely(out / RESULTS_FILE, as_json(record))
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


def _in_words(cell: Cell, result: Result) -> str:
    place = f"{cell[0]}, seed {cell[1]}"
    if "failure" in result:
        return f"{place}: {result['failure']}"
    errors = [
        f"{label} {100 * result[error]:.2f} %"
        for error, label in ERRORS.items()
        if result[error] is not None
    ]
    return f"{place}: {', '.join(errors)}; {result['passes']:,} passes in {result['seconds']:.0f} s"
