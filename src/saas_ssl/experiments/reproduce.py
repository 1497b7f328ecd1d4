"""What `saas reproduce` does: one table or figure of the paper, run, drawn and judged."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any, cast, get_args

import torch
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, PositiveInt
from rich.console import Console

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.experiments import (
    conv_large_table,
    corrupted_labels,
    init,
    label_speed,
    langevin,
    no_augmentation,
    resnet_table,
    sota_table,
    threshold,
    trivial_posterior,
    unlabelled_count,
)
from saas_ssl.experiments.experiment import Experiment, Records
from saas_ssl.experiments.folder import (
    CELLS,
    Cell,
    Result,
    as_json,
    cache_beside,
    check_target,
    fill,
    finished,
    opened,
)
from saas_ssl.experiments.plots import as_file
from saas_ssl.experiments.protocol import Protocol, Scale, kind_of, part_of_test
from saas_ssl.experiments.table import of_arms
from saas_ssl.experiments.trial import Case, Cost
from saas_ssl.experiments.verdicts import as_markdown
from saas_ssl.images.cache import Progress
from saas_ssl.labelling.request import read_test
from saas_ssl.progress.display import counting
from saas_ssl.runs.checkpoints import write_safely
from saas_ssl.runs.record import hardware, package_versions, versions
from saas_ssl.sources.finding import find
from saas_ssl.sources.reading import read_source
from saas_ssl.sources.wording import counted
from saas_ssl.training.devices import find_place
from saas_ssl.training.forecast import measure
from saas_ssl.training.times import duration

EXPERIMENTS: dict[str, Experiment] = {
    "corrupted-labels": corrupted_labels.EXPERIMENT,
    "threshold": threshold.EXPERIMENT,
    "unlabelled-count": unlabelled_count.EXPERIMENT,
    "label-speed": label_speed.EXPERIMENT,
    "langevin": langevin.EXPERIMENT,
    "resnet-table": resnet_table.EXPERIMENT,
    "sota-table": sota_table.EXPERIMENT,
    "conv-large-table": conv_large_table.EXPERIMENT,
    "no-augmentation": no_augmentation.EXPERIMENT,
    "trivial-posterior": trivial_posterior.EXPERIMENT,
    "init": init.EXPERIMENT,
}
PLAN_FILE, RESULTS_FILE, SUMMARY_FILE = "plan.json", "results.json", "summary.md"
FIGURES = {"png": "figure.png", "svg": "figure.svg"}
_OURS = frozenset({PLAN_FILE, RESULTS_FILE, SUMMARY_FILE, *FIGURES.values()})
_WHAT = "reproduction"


class Conditions(BaseModel):
    """What all runs of a reproduction have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: str
    scale: Scale
    data: str
    test: str
    device: str = "auto"
    threads: PositiveInt = 1


def conditions_of(
    name: str, scale: str, data: str | None, test: str | None, device: str, threads: int
) -> Conditions:
    """What is asked for, or one sentence about what is wrong with it."""
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown experiment {name!r}: choose one of {', '.join(EXPERIMENTS)}")
    if scale not in get_args(Scale):
        raise ValueError(f"unknown scale {scale!r}: choose one of {', '.join(get_args(Scale))}")
    if data is None and scale != "smoke":
        example = "cifar10:DIR or svhn:DIR" if scale == "paper" else "idx:DIR for MNIST"
        raise ValueError(f"name the data with --data, such as {example}")
    data = data or "digits:train"
    test = test or part_of_test(data)
    if test is None:
        raise ValueError("name the test data with --test: these data have no part for it")
    return Conditions(
        experiment=name,
        scale=cast(Scale, scale),
        data=data,
        test=test,
        device=device,
        threads=threads,
    )


def listing() -> str:
    """The names of all experiments, and what they are."""
    width = max(map(len, EXPERIMENTS))
    return "\n".join(f"{name:<{width}}  {own.title}" for name, own in EXPERIMENTS.items())


def reproduce_into(
    conditions: Conditions,
    seeds: Sequence[int],
    out: Path,
    workers: int,
    console: Console,
    resume: bool = False,
    overwrite: bool = False,
) -> None:
    """Run what is missing in `out`; write the numbers, the figure and the verdicts."""
    torch.set_num_threads(conditions.threads)
    check_target(out, _OURS, _WHAT)
    if (out / PLAN_FILE).exists() and not (resume or overwrite):
        raise ValueError(
            f"{out} exists: choose another --out, or give --resume to continue it, or --overwrite"
        )
    experiment, cache = EXPERIMENTS[conditions.experiment], cache_beside(out)
    with counting(console, "rows to read", len(find(conditions.data).ids)) as progress:
        full, test = _read(conditions, cache, progress)
    case = _case(conditions, (full, test), seeds[0], out / CELLS / "forecast")
    arms = experiment.arms(case.protocol)
    plan = {
        **conditions.model_dump(mode="json"),
        "protocol": case.protocol.model_dump(mode="json"),
        "versions": package_versions(),
        "fingerprint": sha256(f"{full.fingerprint()} {test.fingerprint()}".encode()).hexdigest(),
    }
    costs = {arm: experiment.cost(case, arm) for arm in arms}  # refuses data that are too few
    wanted = [(arm, seed) for seed, arm in product(seeds, arms)]
    console.print(f"{conditions.experiment}: {experiment.title}.")
    with opened(out, overwrite, plan, PLAN_FILE, _WHAT):
        done = finished(out, "arm")
        missing = [cell for cell in wanted if cell not in done]
        console.print(_forecast(costs, case, missing, len(wanted), workers))
        try:
            failures = fill(
                partial(_attempt, conditions, out, cache, console.quiet),
                *(wanted, done, out, workers, console, _in_words),
                after=lambda: _tidy(out, done),
            )
        except (KeyboardInterrupt, SystemExit):
            console.print("Stopped. The same command with --resume goes on with what is missing.")
            raise
        summary = _conclude(experiment, conditions, plan, arms, done, out)
    if summary is not None:
        console.print(f"\n{summary}", end="")
        console.print(f"\n{out} has the figure, the numbers of all runs and the verdicts.")
    if failures:
        raise ValueError(f"{counted(len(failures), 'run')} failed, the first: {failures[0]}")


def _read(
    conditions: Conditions, cache: Path, progress: Progress
) -> tuple[PartiallyLabelled, PartiallyLabelled]:
    """(All rows with all labels, the test rows)."""
    reading = read_source(find(conditions.data), cache=cache, progress=progress)
    if bool((reading.data.y < 0).any()):
        raise ValueError(
            f"{conditions.data} has rows without a label; experiments hide labels themselves, and "
            "need them all to measure by"
        )
    if reading.data.x.ndim != 4:
        raise ValueError("the experiments of the paper are about images, but these are features")
    return reading.data, read_test(find(conditions.test), reading, cache).data


def _case(
    conditions: Conditions,
    data: tuple[PartiallyLabelled, PartiallyLabelled],
    seed: int,
    folder: Path,
) -> Case:
    full, test = data
    kind = kind_of(conditions.scale, conditions.data, full.x.shape[1])
    protocol: Protocol = EXPERIMENTS[conditions.experiment].protocol(kind)
    place = find_place(conditions.device, "fp32", compiled=False)
    return Case(full, test, protocol, seed, place, folder)


def _forecast(
    costs: Mapping[str, Cost], case: Case, missing: Sequence[Cell], all_: int, workers: int
) -> str:
    """How many image passes are left, and how long they take at the speed of some steps here."""
    if not missing:
        return f"All {all_} runs are there."
    cost = sum((costs[arm] for arm, _ in missing), Cost(0.0))
    speed = measure(case.problem())
    seconds = cost.passes * max(speed.one, speed.two) / min(workers, len(missing))
    least = "at least " if cost.at_least else ""
    there = f" of {all_}" if len(missing) < all_ else ""
    return (
        f"{counted(len(missing), 'run')}{there}: {least}{cost.passes:,.0f} image passes through "
        f"{case.protocol.settings.network}, {least or 'about '}{duration(seconds)} on this machine."
    )


def _attempt(conditions: Conditions, out: Path, cache: Path, quiet: bool, cell: Cell) -> Result:
    """The record of a run, or why there is none: others may still succeed."""
    torch.set_num_threads(conditions.threads)
    arm, seed = cell

    def tell(how_far: str) -> None:
        if not quiet:
            print(f"{arm}, seed {seed}: {how_far}", flush=True)

    start = time.monotonic()
    try:
        data = _read(conditions, cache, lambda _done: None)
        case = replace(_case(conditions, data, seed, _checkpoints(out, cell)), tell=tell)
        record = EXPERIMENTS[conditions.experiment].run(case, arm)
    except ValueError as error:
        return {"failure": str(error)}
    return {"arm": arm, "seed": seed, **record, "wall": round(time.monotonic() - start, 2)}


def _checkpoints(out: Path, cell: Cell) -> Path:
    return out / CELLS / f"{cell[0]}-{cell[1]}"


def _tidy(out: Path, done: Mapping[Cell, Result]) -> None:
    """Runs that are done need no checkpoints."""
    for cell in done:
        shutil.rmtree(_checkpoints(out, cell), ignore_errors=True)


def _in_words(cell: Cell, result: Result) -> str:
    place = f"{cell[0]}, seed {cell[1]}"
    if "failure" in result:
        return f"{place}: {result['failure']}"
    told = {"unlabelled_error": "wrong labels", "test_error": "test error"}
    errors = [f"{words} {100 * result[k]:.2f} %" for k, words in told.items() if k in result]
    return f"{place}: {', '.join([*errors, duration(result['wall'])])}"


def _conclude(
    experiment: Experiment,
    conditions: Conditions,
    plan: Mapping[str, Any],
    arms: Sequence[str],
    done: Mapping[Cell, Result],
    out: Path,
) -> str | None:
    """Write the numbers, and figure and verdicts of the seeds that have all arms, if any do."""
    seeds = sorted({seed for _, seed in done})
    whole = [seed for seed in seeds if all((arm, seed) in done for arm in arms)]
    record = {
        "conditions": dict(plan),
        "versions": versions(),
        "hardware": hardware(),
        "runs": [done[cell] for cell in sorted(done, key=lambda cell: (cell[1], cell[0]))],
    }
    if not whole:
        write_safely(out / RESULTS_FILE, as_json(record))
        return None
    records: Records = {arm: {seed: done[arm, seed] for seed in whole} for arm in arms}
    verdicts = experiment.verdicts(records)
    record["verdicts"] = [verdict.as_json() for verdict in verdicts]
    figure = Figure(figsize=experiment.size, layout="constrained")
    experiment.draw(figure, records)
    figure.suptitle(_caption(conditions, plan, len(whole)), fontsize="small")
    for kind, name in FIGURES.items():
        write_safely(out / name, as_file(figure, kind))
    write_safely(out / RESULTS_FILE, as_json(record))
    summary = f"{of_arms(records)}\n{as_markdown(verdicts)}"
    write_safely(out / SUMMARY_FILE, summary.encode())
    return summary


def _caption(conditions: Conditions, plan: Mapping[str, Any], runs: int) -> str:
    protocol = plan["protocol"]
    name = "/".join(conditions.data.rstrip("/").split("/")[-2:])
    return (
        f"{conditions.experiment}, {conditions.scale}: {name}, {protocol['settings']['network']}, "
        f"{counted(runs, 'seed')}"
    )
