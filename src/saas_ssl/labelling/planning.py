"""What is decided before a run begins: its settings, its lengths, and what is said of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from rich.console import Console

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.labelling.agreement import Agreement, agreed, sample
from saas_ssl.labelling.request import Prepared, Request, Truth, shared_rows
from saas_ssl.labelling.task import Task
from saas_ssl.runs.record import package_versions
from saas_ssl.sources.wording import counted
from saas_ssl.training.budget import Clock, Deadline, fit
from saas_ssl.training.choosing import checked, chosen_settings
from saas_ssl.training.devices import Place, find_place
from saas_ssl.training.forecast import Forecast, in_words, measure, planned_passes
from saas_ssl.training.presets import Settings, named_preset
from saas_ssl.training.problem import Problem, prepare
from saas_ssl.training.ranks import Ranks


def opening(request: Request, problem: Problem, all_: Prepared) -> list[str]:
    """What is about to be done."""
    data, settings = problem.data, problem.settings
    shape = "x".join(map(str, data.x.shape[1:]))
    n = len(all_.reading.skipped)
    skipped = f", {n:,} skipped" if n else ""
    fixed = settings.classifier_schedule != "halving"
    length = counted(settings.classifier_epochs, "epoch") if fixed else "as many as it takes"
    return [
        f"{request.data}: {len(data.labelled_rows):,} labelled, {len(data.unlabelled_rows):,} "
        f"unlabelled{skipped}; {data.n_classes} classes, rows of {shape}",
        f"{settings.network}, {counted(settings.outer_iterations, 'outer iteration')} of "
        f"{counted(settings.inner_epochs, 'epoch')}, then {length}; one outer iteration "
        f"moves P_u by {problem.effective_step:g} x the mean negative log-likelihood",
    ]


@dataclass(frozen=True)
class Plan:
    """What rank 0 decides before a run begins."""

    problem: Problem
    seconds: float | None  # that it will take; None where nobody knows
    deadline: Deadline | None  # of a run with a budget


def settings_of(task: Task, data: PartiallyLabelled, record: dict[str, Any] | None) -> Settings:
    """Those of the run that goes on, or else what is asked for and what the data suggest."""
    if record is not None:
        return Settings.model_validate(record["config"])
    return chosen_settings(data, *base_and_given(task))


def base_and_given(task: Task) -> tuple[Settings | None, dict[str, Any]]:
    """The settings to start from, if not from the data, and what is given, checked."""
    base = task.config or (None if task.preset == "automatic" else named_preset(task.preset))
    return base, checked(base, task.given)


def place_of(task: Task, ranks: Ranks) -> Place:
    """Where this process computes."""
    how = task.execution
    return find_place(how.device, how.precision, how.compile, ranks.local_rank)


def prepared_for(task: Task, ranks: Ranks, all_: Prepared, settings: Settings) -> Problem:
    """The problem of one process."""
    return prepare(
        all_.data,
        settings,
        task.seed,
        place=place_of(task, ranks),
        ranks=ranks,
        reviewed=all_.reading.reviewed,
    )


def planned(
    task: Task, ranks: Ranks, all_: Prepared, record: dict[str, Any] | None, elapsed: Clock
) -> Plan:
    """What will be done: a new run with a budget is fitted to it."""
    settings = settings_of(task, all_.data, record)
    if ranks.shares_rows:  # they prepare together what each alone would prepare later
        agreed(ranks, Agreement(settings=settings, data=sample(all_.data)))
    prepared = partial(prepared_for, task, ranks, all_)
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


def announce(console: Console, task: Task, plan: Plan, all_: Prepared) -> None:
    """What is about to be done, how long it will take, and what looks wrong."""
    console.print("\n".join(opening(task.request, plan.problem, all_)))
    console.print(in_words(plan.seconds, plan.problem.ranks.size, task.budget))
    if all_.truth.test is not None and (again := shared_rows(all_.truth.test, all_.data)):
        console.print(f"Beware: {again:,} of the test rows are among the data, too.")


def _left(budget: float, elapsed: Clock) -> float:
    return budget - elapsed()


def record_of(
    task: Task, plan: Plan, all_: Prepared, record: dict[str, Any] | None
) -> dict[str, Any]:
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


def identity_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint must have in common with the run that goes on with it."""
    same = {name: about[name] for name in ("seed", "processes")}
    same["label_folds"] = about["scrutiny"]["label_folds"]
    return {**about["config"], **same, "data": about["data"]["fingerprint"], **package_versions()}


def describe(problem: Problem, truth: Truth, skipped: int) -> dict[str, Any]:
    """What run.json says of the settings and the data."""
    data = problem.data
    return {
        "config": problem.settings.model_dump(),
        "effective_step": problem.effective_step,
        "seed": problem.seed,
        "data": {
            "fingerprint": data.fingerprint(),
            "classes": list(data.classes),
            "in_shape": list(data.x.shape[1:]),
            "labelled": len(problem.training.labelled_rows),
            "unlabelled": len(data.unlabelled_rows),
            "validation": len(problem.validation.labelled_rows) if problem.validation else 0,
            "test": len(truth.test.labelled_rows) if truth.test else 0,
            "skipped": skipped,
        },
    }
