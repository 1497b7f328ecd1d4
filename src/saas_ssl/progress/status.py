"""What `saas status` says of a run, from the files of its directory alone."""

import json
import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from saas_ssl.progress.display import PARTS, sparkline
from saas_ssl.progress.summary import summary
from saas_ssl.runs.files import CHECKPOINT_FOLDER, METRICS_FILE, RUN_FILE
from saas_ssl.sources.wording import counted
from saas_ssl.training.times import duration

Part = Literal["supervised", "one", "two"]


class Config(BaseModel):
    """The settings that say how long a run is."""

    outer_iterations: int


class Data(BaseModel):
    """The size of the data."""

    labelled: int
    unlabelled: int
    classes: list[str]


class Plan(BaseModel):
    """The forecast of a run's cost; None where nobody knows."""

    image_passes: dict[Part, int | None]
    seconds: float | None


class Record(BaseModel):
    """What run.json says of a run that is not finished."""

    config: Config
    data: Data
    seed: int
    budget: float | None
    plan: Plan
    started: datetime


class Line(BaseModel):
    """A line of metrics.jsonl; outer iterations have some of the fields, epochs the others."""

    phase: Part
    outer: int = -1
    cumulative_loss: float = 0.0
    changed: float = 0.0
    epoch: int = -1
    loss: float = 0.0
    image_passes: int
    seconds: float

    @property
    def place(self) -> tuple[int, int]:
        """Where it is in the order of the run."""
        return _order(self.phase), max(self.outer, self.epoch)


class Checkpoint(BaseModel):
    """Where a run would continue."""

    stage: Part
    t: int


def status(run: Path, running: bool, now: float) -> list[str]:
    """How far a run is, in plain words; `now` is in seconds since 1970."""
    file = run / RUN_FILE
    if not file.is_file():
        raise ValueError(f"{run} is not a run directory")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["results"] is not None:
            return [f"{run}: finished.", *summary(found, run)]
        record = Record.model_validate(found)
    except (ValueError, LookupError, TypeError):
        raise ValueError(f"{file} is broken: it is not what saas label writes") from None
    return [*_opening(run, record, running, now), *_so_far(run, record, running, now)]


def _opening(run: Path, record: Record, running: bool, now: float) -> list[str]:
    """Whether it runs, and with what."""
    data, place = record.data, shlex.quote(str(run))
    started = record.started.replace(tzinfo=record.started.tzinfo or UTC).timestamp()
    budget = "" if record.budget is None else f", time budget {duration(record.budget)}"
    return [
        f"{run}: running, started {_ago(started, now)}."
        if running
        else f"{run}: stopped; continue with: saas label --out {place} --resume",
        f"{data.labelled:,} labelled and {data.unlabelled:,} unlabelled rows, "
        f"{len(data.classes)} classes, seed {record.seed}{budget}.",
    ]


def _so_far(run: Path, record: Record, running: bool, now: float) -> list[str]:
    """What is done, how fast that was, and how long the rest takes."""
    metrics, checkpoint = _metrics(run / METRICS_FILE), _newest_checkpoint(run / CHECKPOINT_FOLDER)
    reached: list[Part] = ["supervised", *(line.phase for line in metrics)]
    if checkpoint is not None:
        reached.append(checkpoint[0].stage)
    part = max(reached, key=_order)
    lines = [f"{PARTS[part].capitalize()}: {_done(part, metrics, record)}."]
    if losses := [line.cumulative_loss for line in metrics if line.phase == "one"]:
        lines.append(f"Cumulative loss (the lower the faster learnt): {sparkline(losses[-40:])}")
    if metrics:
        measured = (run / METRICS_FILE).stat().st_mtime
        since = max(0.0, now - measured) if running else 0.0
        lines.append(_cost(part, metrics, record.plan, since))
        lines.append(f"Last measured {_ago(measured, now)}.")
    elif record.plan.seconds is not None:
        lines.append(f"About {duration(record.plan.seconds)} in all, as forecast.")
    if checkpoint is not None:
        state, written = checkpoint
        within = "an inner loop" if state.stage == "one" else "an epoch"
        steps = counted(state.t, "step")
        lines.append(f"Last checkpoint {_ago(written, now)}, {steps} into {within}.")
    return lines


def _done(part: Part, metrics: Sequence[Line], record: Record) -> str:
    """How many outer iterations or epochs of this part, of how many, and what the last gave."""
    outer_iterations = counted(record.config.outer_iterations, "outer iteration")
    last = next((line for line in reversed(metrics) if line.phase == part), None)
    if last is None:
        return f"0 of {outer_iterations} done" if part == "one" else "no epoch done yet"
    if part == "one":
        return (
            f"{last.outer + 1} of {outer_iterations} done; the last changed {last.changed:.1%} "
            f"of the labels, cumulative loss {last.cumulative_loss:.3f}"
        )
    done, planned = last.epoch + 1, record.plan.image_passes[part]
    if planned is None:
        return f"{counted(done, 'epoch')} done, loss {last.loss:.3f}"
    total = round(planned * done / _spent(metrics)[part])  # all epochs of a part cost the same
    return f"{done} of {counted(total, 'epoch')} done, loss {last.loss:.3f}"


def _cost(part: Part, metrics: Sequence[Line], plan: Plan, since: float) -> str:
    """Image passes done and to do, and how long the rest takes, `since` seconds after the last."""
    spent = _spent(metrics)
    ahead = {
        name: planned for name, planned in plan.image_passes.items() if _order(name) >= _order(part)
    }
    rest = sum(max(0, planned - spent[name]) for name, planned in ahead.items() if planned)
    known, done = None not in ahead.values(), sum(spent.values())
    text = f"{done:,} image passes done"
    if known:
        text = f"{done:,} of {done + rest:,} image passes done ({done / (done + rest):.0%})"
    if metrics[-1].seconds <= 0:
        return f"{text}."
    speed = metrics[-1].image_passes / metrics[-1].seconds
    text = f"{text}, {speed:,.0f} a second"
    if not known and rest == 0:
        return f"{text}."
    left = duration(max(0.0, rest / speed - since))
    return f"{text}; {'about' if known else 'more than'} {left} left."


def _spent(metrics: Sequence[Line]) -> dict[Part, int]:
    """Image passes of each part: the lines of phase two count those of phase one, too."""
    last = {line.phase: line.image_passes for line in metrics}
    one = last.get("one", 0)
    return {"supervised": last.get("supervised", 0), "one": one, "two": last.get("two", one) - one}


def _metrics(file: Path) -> list[Line]:
    """The whole lines; what a process is writing, or was when it died, is none."""
    lines: list[Line] = []
    for text in file.read_bytes().splitlines() if file.is_file() else []:
        try:
            line = Line.model_validate_json(text)
        except ValidationError:
            continue
        # A run that continues from a checkpoint does again what came after it.
        while lines and lines[-1].place >= line.place:
            lines.pop()
        lines.append(line)
    return lines


def _newest_checkpoint(folder: Path) -> tuple[Checkpoint, float] | None:
    """The checkpoint of the highest number, and when it was written."""
    files = [file for file in folder.glob("*.json") if re.search(r"\d", file.stem)]
    for file in sorted(files, key=lambda file: int(re.findall(r"\d+", file.stem)[-1]))[::-1]:
        try:
            return Checkpoint.model_validate_json(file.read_bytes()), file.stat().st_mtime
        except (ValidationError, FileNotFoundError):  # half written, or just replaced
            continue
    return None


def _order(part: Part) -> int:
    return list(PARTS).index(part)


def _ago(then: float, now: float) -> str:
    return f"{duration(max(0.0, now - then))} ago"
