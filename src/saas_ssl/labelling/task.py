"""What is asked of a run, and whether what is asked of a run that goes on is still the same."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.labelling.request import Request, repeated
from saas_ssl.runs.directory import free_name, is_stub
from saas_ssl.runs.files import CHECKPOINT_FOLDER
from saas_ssl.runs.record import package_versions, read_run
from saas_ssl.training.choosing import plainly
from saas_ssl.training.devices import Precision
from saas_ssl.training.presets import Settings, named_preset
from saas_ssl.training.ranks import Parallel
from saas_ssl.training.times import seconds_of
from saas_ssl.trust.judging import Scrutiny

_NEEDED = {
    *("request", "preset", "given", "config", "seed", "execution", "budget", "checkpoint_every"),
    *("log", "data", "versions", "processes", "scrutiny", "results"),
}


_MAPPINGS = ("request", "given", "config", "execution", "data", "versions", "scrutiny")


class Execution(BaseModel):
    """How a run is computed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workers: PositiveInt = 1
    parallel: Parallel = "trajectories"
    precision: Precision = "fp32"
    compile: bool = False
    device: str = "auto"
    threads: PositiveInt = 1


class Task(BaseModel):
    """All that is asked of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    out: Path
    request: Request
    command: str | None = None  # as it was typed
    preset: str = "automatic"
    config: Settings | None = None  # of an earlier run, instead of a preset
    given: dict[str, Any] = {}
    seed: int = 0
    execution: Execution = Execution()
    budget: float | None = None  # seconds
    checkpoint_every: float = 120.0  # seconds
    log: Literal["tensorboard"] | None = None
    scrutiny: Scrutiny = Scrutiny()


def ask(
    *,
    command: str | None = None,
    out: Path | None = None,
    resume: bool = False,
    request: Mapping[str, Any],
    preset: str | None = None,
    config: Path | None = None,
    given: Mapping[str, Any],
    seed: int | None = None,
    execution: Mapping[str, Any],
    budget: str | None = None,
    checkpoint_every: str | None = None,
    log: str | None = None,
    scrutiny: Mapping[str, Any] | None = None,
) -> tuple[Task, bool]:
    """The task that is asked for, and whether it goes on with a run that was interrupted.

    What is None, or not in a mapping, was not asked for.
    """
    limits: dict[str, Any] = {
        "budget": None if budget is None else seconds_of(budget),
        "checkpoint_every": None if checkpoint_every is None else seconds_of(checkpoint_every),
        "log": log,
    }
    limits = {name: value for name, value in limits.items() if value is not None}
    settings, scrutiny = None, scrutiny or {}
    if config is not None:
        earlier, settings, earlier_seed, earlier_scrutiny = repeated(config)
        request = {**earlier.model_dump(), **request}
        seed = earlier_seed if seed is None else seed
        scrutiny = {**earlier_scrutiny.model_dump(), **scrutiny}
    if resume and out is None:
        raise ValueError("name the run to go on with: --out RUN --resume")
    is_there = out is not None and out.exists() and not is_stub(out)
    if resume and out is not None and (is_there or "data" not in request):
        every = given if settings is None else {**settings.model_dump(), **given}
        asked = {"request": request, "preset": preset, "given": every, "seed": seed}
        asked["scrutiny"] = scrutiny
        return _resumed(out, asked, execution, limits), True
    if preset is not None:
        settings = None
        if preset != "automatic":
            named_preset(preset)
    try:
        task = Task(
            out=out or free_name(Path("runs/label")),
            request=Request(**request),
            command=command,
            preset=preset or "automatic",
            config=settings,
            given=dict(given),
            seed=seed or 0,
            execution=Execution(**execution),
            scrutiny=Scrutiny(**scrutiny),
            **limits,
        )
    except ValidationError as error:
        raise ValueError(plainly(error)) from None
    return task, False


def is_unfinished(out: Path) -> bool:
    """Whether there is a run that can go on."""
    try:
        return read_run(out)["results"] is None and (out / CHECKPOINT_FOLDER).is_dir()
    except (OSError, ValueError, LookupError, TypeError):
        return False


def how_to_resume(out: Path) -> str:
    """The command, in a sentence."""
    return f"Continue with: saas label --out {shlex.quote(str(out))} --resume"


def _resumed(
    out: Path, asked: Mapping[str, Any], execution: Mapping[str, Any], limits: Mapping[str, Any]
) -> Task:
    """The task of the run in `out`, refused if anything that is asked now was not asked then.

    Where it is computed, and its limits, may change from process to process.
    """
    record = _record(out)
    for package, ours in package_versions().items():
        if (theirs := record["versions"].get(package)) != ours:
            raise ValueError(
                f"{out} was begun with {package} {theirs}, but this is {package} {ours}: a run "
                "goes on only with what it was begun with"
            )
    where = {"device", "threads"}
    fixed = {name: value for name, value in execution.items() if name not in where}
    for wanted, then in (
        (asked["request"], record["request"]),
        (asked["given"], {**record["config"], **record["given"]}),
        (fixed, record["execution"]),
        (asked["scrutiny"], record["scrutiny"]),
        ({name: asked[name] for name in ("preset", "seed") if asked[name] is not None}, record),
    ):
        for name, value in wanted.items():
            if then.get(name) != value:
                raise ValueError(f"{name} is {then.get(name)} in {out}, but {value} is asked for")
    try:
        return Task.model_validate(
            {
                **{
                    name: record[name]
                    for name in ("request", "preset", "given", "seed", "scrutiny")
                },
                **{name: record[name] for name in ("budget", "checkpoint_every", "log")},
                **limits,
                "out": out,
                "execution": {**record["execution"], **execution},
            }
        )
    except ValidationError as error:
        raise ValueError(f"{out} cannot go on: {plainly(error)}") from None


def _record(out: Path) -> dict[str, Any]:
    try:
        record = read_run(out)
        if isinstance(record, dict) and record.keys() >= _NEEDED and _has_mappings(record):
            return record
    except (OSError, ValueError, TypeError, RecursionError):
        pass
    raise ValueError(f"{out} is not a run that can go on: it has no run.json of this version")


def _has_mappings(record: Mapping[str, Any]) -> bool:
    facts = {"fingerprint", "classes", "in_shape", "labelled", "validation", "unlabelled"}
    return (
        all(isinstance(record[name], dict) for name in _MAPPINGS) and record["data"].keys() >= facts
    )


def check_same_run(out: Path, facts: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    """Raise ValueError, naming the difference, if a checkpoint is not one of this run."""
    own = facts.get("identity") or {}
    for name, value in identity.items():
        if own.get(name) != value:
            raise ValueError(
                f"the checkpoint in {out} is one of another run: {name} was {own.get(name)} there, "
                f"not {value}"
            )


def check_same_data(out: Path, record: Mapping[str, Any], data: PartiallyLabelled) -> None:
    """Raise ValueError, naming the difference, if the run was begun with other data."""
    then = record["data"]
    if data.fingerprint() == then["fingerprint"]:
        return
    pairs = {
        "classes": (then["classes"], list(data.classes)),
        "rows of shape": (then["in_shape"], list(data.x.shape[1:])),
        "labelled rows": (then["labelled"] + then["validation"], len(data.labelled_rows)),
        "unlabelled rows": (then["unlabelled"], len(data.unlabelled_rows)),
    }
    different = [f"{name} {a}, now {b}" for name, (a, b) in pairs.items() if a != b]
    what = "; ".join(different) or "as many rows, but other pixels, labels or names"
    raise ValueError(f"the data are not those that {out} was begun with: {what}")
