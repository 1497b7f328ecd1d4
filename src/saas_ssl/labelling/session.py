"""One call of `saas label`, in one process or many: from what is asked for to a finished run."""

import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from rich.console import Console

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.labelling.job import Truth, describe, run_job, take_part
from saas_ssl.labelling.journal import STAGES, Journal
from saas_ssl.labelling.request import (
    Prepared,
    checked,
    chosen_settings,
    found,
    opening,
    read_all,
    shared_rows,
)
from saas_ssl.labelling.stopping import RunStoppedError, StopSignals
from saas_ssl.labelling.task import (
    Task,
    check_same_data,
    check_same_run,
    how_to_resume,
    is_unfinished,
)
from saas_ssl.progress.board import Board
from saas_ssl.progress.display import Display, counting
from saas_ssl.progress.summary import summary
from saas_ssl.runs.checkpoints import Checkpoint, Checkpoints
from saas_ssl.runs.directory import (
    BOARD_FOLDER,
    CHECKPOINT_FOLDER,
    check_target,
    complete,
    new_run,
    old_run,
    package_versions,
    read_run,
    write_run,
)
from saas_ssl.training.budget import (
    Clock,
    Deadline,
    Forecast,
    fit,
    in_words,
    measure,
    planned_passes,
)
from saas_ssl.training.devices import Place, find_place
from saas_ssl.training.pipeline import Problem, prepare
from saas_ssl.training.presets import Settings, named_preset
from saas_ssl.training.ranks import LostWorkerError, Ranks, Workers, ranks_of_torchrun

CACHE = ".saas-cache"


class Agreement(BaseModel):
    """What rank 0 tells the others before they begin."""

    settings: Settings
    data: str  # a hash, so that no rank works on others


@dataclass(frozen=True)
class Plan:
    """What rank 0 decides before a run begins."""

    problem: Problem
    seconds: float | None  # that it will take; None where nobody knows
    deadline: Deadline | None  # of a run with a budget


def label_into(
    task: Task,
    console: Console,
    overwrite: bool = False,
    resume: bool = False,
    started: float | None = None,
) -> None:
    """Read the data, infer their labels, write the run directory, and say how it went.

    `started` is when the command began, by time.monotonic: a budget counts from there.
    """
    torch.set_num_threads(task.execution.threads)
    ranks = ranks_of_torchrun(task.execution.parallel)
    if ranks is not None and task.execution.workers > 1 and not resume:
        raise ValueError("under torchrun its --nproc-per-node says how many processes there are")
    started = time.monotonic() if started is None else started
    leads = ranks is None or ranks.rank == 0
    finished = resume and leads and read_run(task.out)["results"] is not None
    if ranks is not None:
        finished = json.loads(ranks.text_from_first(json.dumps(finished)))
    if finished:
        if leads:
            shutil.rmtree(task.out / CHECKPOINT_FOLDER, ignore_errors=True)  # if it was killed late
            console.print(f"{task.out} is finished already.")
    elif leads:
        _lead_and_tell(task, ranks, console, overwrite, resume, started)
    elif ranks is not None:
        follow(task, ranks)
    if ranks is not None:
        ranks.leave()


def _lead_and_tell(
    task: Task,
    ranks: Ranks | None,
    console: Console,
    overwrite: bool,
    resume: bool,
    started: float,
) -> None:
    """Lead the run, and say how it went or how to go on with it."""
    try:
        with ExitStack() as stack:
            _lead(task, ranks, console, overwrite, resume, started, stack)
    except (RunStoppedError, KeyboardInterrupt):
        if is_unfinished(task.out):
            console.print(f"Stopped. {how_to_resume(task.out)}")
        raise
    except (LostWorkerError, OSError) as error:
        hint = f". {how_to_resume(task.out)}" if is_unfinished(task.out) else ""
        raise ValueError(f"{error}{hint}") from None
    console.print()
    console.print("\n".join(summary(read_run(task.out), task.out)))


def _lead(
    task: Task,
    ranks: Ranks | None,
    console: Console,
    overwrite: bool,
    resume: bool,
    started: float,
    stack: ExitStack,
) -> None:
    """Rank 0: it decides, writes and talks."""
    record = read_run(task.out) if resume else None
    if record is None:
        check_target(task.out, overwrite)
    # What is wrong is told before an hour of decoding.
    _base_and_given(task)
    _place(task, ranks or Ranks())
    all_ = _read(task, ranks or Ranks(), console)
    if record is not None:
        check_same_data(task.out, record, all_.data)
    ranks = ranks or _with_workers(task, stack)
    if record is not None and record["processes"] != ranks.size:
        raise ValueError(
            f"{task.out} was begun with {record['processes']} processes, but this is {ranks.size}"
        )
    checkpoints = _checkpoints(task, ranks)
    elapsed = _elapsed(started, checkpoints, record)
    plan = _planned(task, ranks, all_, record, elapsed)
    _announce(console, task, plan, all_)
    about = _about(task, plan, all_, record)
    folder = new_run(task.out, overwrite) if record is None else old_run(task.out)
    directory = stack.enter_context(folder)
    if record is not None and read_run(directory)["results"] is not None:
        return  # another process has finished it meanwhile
    resumed = _resumed(checkpoints, ranks)
    identity = _identity(about)
    if resumed is not None:
        check_same_run(task.out, resumed.facts, identity)
    write_run(directory, complete({**about, "results": None}))
    _agreed(ranks, Agreement(settings=plan.problem.settings, data=_sample(all_.data)))
    log = Board(directory / BOARD_FOLDER) if task.log == "tensorboard" else None
    if log is not None:
        stack.callback(log.close)
    journal = Journal(
        directory,
        checkpoints,
        stack.enter_context(_display(console, plan.problem)),
        stack.enter_context(StopSignals()),
        every=task.checkpoint_every,
        ranks=ranks,
        resumed=resumed,
        identity=identity,
        log=log,
        elapsed=elapsed,
    )
    try:
        run_job(
            plan.problem,
            all_.truth,
            directory,
            journal,
            about,
            plan.deadline,
            task.scrutiny,
            all_.reading,
        )
    except RuntimeError as error:
        raise _plainly(error, ranks) from error
    if not ranks.from_torchrun:
        ranks.leave()


def follow(task: Task, ranks: Ranks) -> None:
    """Any other rank: it does its share of the work and writes nothing but its own checkpoints."""
    torch.set_num_threads(task.execution.threads)
    all_ = _read(task, ranks, Console(quiet=True))
    own = Agreement(settings=Settings(), data=_sample(all_.data))
    problem = None
    if ranks.shares_rows:
        problem = _prepared(task, ranks, all_, _agreed(ranks, own).settings)
    checkpoints = _checkpoints(task, ranks)
    resumed = _resumed(checkpoints, ranks) if ranks.shares_rows else None
    told = _agreed(ranks, own)
    problem = problem or _prepared(task, ranks, all_, told.settings)
    problem = replace(problem, settings=told.settings)
    deadline = None
    if task.budget is not None:  # only the clock of rank 0 counts
        deadline = Deadline(float, Forecast(1.0, 1.0, 1.0), told.settings, task.given, ranks)
    with StopSignals() as stop, Display(Console(quiet=True), planned_passes(problem)) as display:
        journal = Journal(
            task.out,
            checkpoints,
            display,
            stop,
            every=task.checkpoint_every,
            ranks=ranks,
            resumed=resumed if ranks.shares_rows else checkpoints.newest(),
        )
        if ranks.shares_rows:
            run_job(problem, Truth(), task.out, journal, {}, deadline, task.scrutiny)
        else:
            take_part(problem, journal, deadline, task.scrutiny.label_folds)


def _read(task: Task, ranks: Ranks, console: Console) -> Prepared:
    """Read the data; of the processes of a machine the first decodes them, for all."""
    source, test_source = found(task.request)
    cache = task.out.absolute().parent / CACHE
    shared = ranks.size > 1 or task.execution.workers > 1
    if ranks.from_torchrun and ranks.local_rank:
        ranks.meet()
    with counting(console, "reading rows", len(source.ids)) as progress:
        all_ = read_all(task.request, source, test_source, task.seed, cache, progress, shared)
    if ranks.from_torchrun and not ranks.local_rank:
        ranks.meet()
    return all_


def _with_workers(task: Task, stack: ExitStack) -> Ranks:
    """The first of so many processes, of which the others are started now."""
    size, parallel = task.execution.workers, task.execution.parallel
    if size == 1:
        return Ranks()
    store = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "store"
    others = [Ranks(rank, size, rank, parallel, store) for rank in range(1, size)]
    ranks = Ranks(0, size, 0, parallel, store)
    workers = stack.enter_context(Workers([as_text(task, other) for other in others]))
    ranks.alive = workers.check
    return ranks


def as_text(task: Task, ranks: Ranks) -> str:
    """What a worker is told, in one line."""
    who = {"rank": ranks.rank, "size": ranks.size, "parallel": ranks.parallel}
    return json.dumps({"task": task.model_dump(mode="json"), **who, "store": str(ranks.store)})


def follow_text(text: str) -> None:
    """Do what a worker is told."""
    told = json.loads(text)
    rank, store = told["rank"], Path(told["store"])
    ranks = Ranks(rank, told["size"], rank, told["parallel"], store)
    follow(Task.model_validate(told["task"]), ranks)
    ranks.leave()


def _settings(task: Task, data: PartiallyLabelled, record: dict[str, Any] | None) -> Settings:
    if record is not None:
        return Settings.model_validate(record["config"])
    return chosen_settings(data, *_base_and_given(task))


def _base_and_given(task: Task) -> tuple[Settings | None, dict[str, Any]]:
    """The settings to start from, if not from the data, and what is given, checked."""
    base = task.config or (None if task.preset == "automatic" else named_preset(task.preset))
    return base, checked(base, task.given)


def _place(task: Task, ranks: Ranks) -> Place:
    how = task.execution
    return find_place(how.device, how.precision, how.compile, ranks.local_rank)


def _agreed(ranks: Ranks, agreement: Agreement) -> Agreement:
    """What rank 0 says, if this is about the same data."""
    text = ranks.text_from_first(agreement.model_dump_json())
    told = Agreement.model_validate_json(text)
    if told.data != agreement.data:
        raise ValueError("the data here are not those that the first process has read")
    return told


def _sample(data: PartiallyLabelled) -> str:
    """A hash of the labels and of a thousand rows: cheap, and unlike for unlike data."""
    rows = torch.arange(len(data.y))[:: max(1, len(data.y) // 1000)]
    return sha256(data.y.numpy().tobytes() + data.x[rows].numpy().tobytes()).hexdigest()


def _prepared(task: Task, ranks: Ranks, all_: Prepared, settings: Settings) -> Problem:
    return prepare(
        all_.data,
        settings,
        task.seed,
        place=_place(task, ranks),
        ranks=ranks,
        reviewed=all_.reading.reviewed,
    )


def _planned(
    task: Task, ranks: Ranks, all_: Prepared, record: dict[str, Any] | None, elapsed: Clock
) -> Plan:
    """What will be done: a new run with a budget is fitted to it."""
    settings = _settings(task, all_.data, record)
    if ranks.shares_rows:  # they prepare together what each alone would prepare later
        _agreed(ranks, Agreement(settings=settings, data=_sample(all_.data)))
    prepared = partial(_prepared, task, ranks, all_)
    test_rows = len(all_.truth.test.labelled_rows) if all_.truth.test else 0
    left = None if task.budget is None else partial(_left, task.budget, elapsed)
    if left is None or record is not None:
        problem = prepared(settings)
        forecast, unfitted = Forecast.of(problem, measure(problem), test_rows), problem.settings
    else:
        # Ranks that share the rows have prepared them, for networks of one width.
        any_width = task.preset == "automatic" and not task.config and not ranks.shares_rows
        problem, forecast, unfitted = fit(
            prepared, settings, task.given, any_width, left, test_rows
        )
    deadline = None if left is None else Deadline(left, forecast, unfitted, task.given, ranks)
    return Plan(problem, forecast.whole(problem.settings), deadline)


def _announce(console: Console, task: Task, plan: Plan, all_: Prepared) -> None:
    """What is about to be done, how long it will take, and what looks wrong."""
    console.print("\n".join(opening(task.request, plan.problem, all_)))
    console.print(in_words(plan.seconds, plan.problem.ranks.size, task.budget))
    if all_.truth.test is not None and (again := shared_rows(all_.truth.test, all_.data)):
        console.print(f"Beware: {again:,} of the test rows are among the data, too.")


def _left(budget: float, elapsed: Clock) -> float:
    return budget - elapsed()


def _elapsed(started: float, checkpoints: Checkpoints, record: dict[str, Any] | None) -> Clock:
    """Seconds that the run has had, those of earlier processes included."""
    last = None if record is None else checkpoints.newest()
    before = 0.0 if last is None else last.facts.get("elapsed", 0.0)
    return lambda: before + time.monotonic() - started


def _checkpoints(task: Task, ranks: Ranks) -> Checkpoints:
    folder = task.out / CHECKPOINT_FOLDER
    folder = folder / f"rank{ranks.rank}" if ranks.rank else folder
    return Checkpoints(folder, kept=2 if ranks.shares_rows else 1)


def _resumed(checkpoints: Checkpoints, ranks: Ranks) -> Checkpoint | None:
    """The newest checkpoint, or, of ranks that take the same steps, the newest that all have."""
    newest = checkpoints.newest()
    if not ranks.shares_rows:
        return newest
    checkpoints.forget_after(ranks.least(newest.number if newest else 0))
    return checkpoints.newest()


def _about(task: Task, plan: Plan, all_: Prepared, record: dict[str, Any] | None) -> dict[str, Any]:
    """All that run.json says but the results."""
    return {
        "command": task.command if record is None else record.get("command"),
        "request": task.request.model_dump(),
        "preset": task.preset,
        "given": task.given,
        **describe(plan.problem, all_.truth, len(all_.reading.skipped)),
        "execution": task.execution.model_dump(),
        "processes": plan.problem.ranks.size,
        "budget": task.budget,
        "checkpoint_every": task.checkpoint_every,
        "log": task.log,
        "scrutiny": task.scrutiny.model_dump(),
        "plan": {"image_passes": planned_passes(plan.problem), "seconds": plan.seconds},
        "started": (record or {}).get("started", datetime.now(UTC).isoformat(timespec="seconds")),
    }


def _identity(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint must have in common with the run that goes on with it."""
    same = {name: about[name] for name in ("seed", "processes")}
    same["label_folds"] = about["scrutiny"]["label_folds"]
    return {**about["config"], **same, "data": about["data"]["fingerprint"], **package_versions()}


def _display(console: Console, problem: Problem) -> Display:
    processes = dict.fromkeys(STAGES, problem.ranks.sharing)
    processes["one"] = problem.ranks.size
    return Display(console, planned_passes(problem), processes=processes)


def _plainly(error: RuntimeError, ranks: Ranks) -> Exception:
    """What torch raises in the middle of a step when another process is gone."""
    if ranks.size == 1 or "memory" in str(error):
        return error
    try:
        time.sleep(0.5)  # if a worker of ours ended, it has by now
        ranks.alive()
    except LostWorkerError as lost:
        return lost
    return LostWorkerError(f"another process is gone: {str(error).splitlines()[0]}")
