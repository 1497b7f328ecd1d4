"""One call of `saas label`, in one process or many: from what is asked for to a finished run."""

import json
import shutil
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from saas_ssl.labelling.agreement import Agreement, agreed, sample
from saas_ssl.labelling.job import run_job, take_part
from saas_ssl.labelling.journal import STAGES, Journal
from saas_ssl.labelling.planning import (
    announce,
    base_and_given,
    identity_of,
    place_of,
    planned,
    prepared_for,
    record_of,
)
from saas_ssl.labelling.request import Prepared, Truth, found, read_all
from saas_ssl.labelling.stopping import RunStoppedError, StopSignals
from saas_ssl.labelling.task import (
    Task,
    check_same_data,
    check_same_run,
    how_to_resume,
    is_unfinished,
)
from saas_ssl.labelling.workers import Workers
from saas_ssl.progress.board import Board
from saas_ssl.progress.display import Display, counting
from saas_ssl.progress.summary import summary
from saas_ssl.runs.checkpoints import Checkpoint, Checkpoints
from saas_ssl.runs.directory import check_target, new_run, old_run
from saas_ssl.runs.files import BOARD_FOLDER, CHECKPOINT_FOLDER
from saas_ssl.runs.record import complete, read_run, write_run
from saas_ssl.training.budget import Clock, Deadline
from saas_ssl.training.forecast import Forecast, planned_passes
from saas_ssl.training.presets import Settings
from saas_ssl.training.problem import Problem
from saas_ssl.training.ranks import LostWorkerError, Ranks, ranks_of_torchrun

CACHE = ".saas-cache"


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
    base_and_given(task)
    place_of(task, ranks or Ranks())
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
    plan = planned(task, ranks, all_, record, elapsed)
    announce(console, task, plan, all_)
    about = record_of(task, plan, all_, record)
    folder = new_run(task.out, overwrite) if record is None else old_run(task.out)
    directory = stack.enter_context(folder)
    if record is not None and read_run(directory)["results"] is not None:
        return  # another process has finished it meanwhile
    resumed = _resumed(checkpoints, ranks)
    identity = identity_of(about)
    if resumed is not None:
        check_same_run(task.out, resumed.facts, identity)
    write_run(directory, complete({**about, "results": None}))
    agreed(ranks, Agreement(settings=plan.problem.settings, data=sample(all_.data)))
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
    own = Agreement(settings=Settings(), data=sample(all_.data))
    problem = None
    if ranks.shares_rows:
        problem = prepared_for(task, ranks, all_, agreed(ranks, own).settings)
    checkpoints = _checkpoints(task, ranks)
    resumed = _resumed(checkpoints, ranks) if ranks.shares_rows else None
    told = agreed(ranks, own)
    problem = problem or prepared_for(task, ranks, all_, told.settings)
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
