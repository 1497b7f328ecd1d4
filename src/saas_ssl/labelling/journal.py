"""Where a run is: its metrics, costs and checkpoints, so that another process can go on."""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from torch import Tensor

from saas_ssl.algorithm.blocks import below, under
from saas_ssl.algorithm.descent import Descent
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.labelling.stopping import RunStoppedError, StopSignals
from saas_ssl.progress.display import Display
from saas_ssl.runs.checkpoints import Checkpoint, Checkpoints
from saas_ssl.runs.files import METRICS_FILE
from saas_ssl.training.problem import Problem
from saas_ssl.training.ranks import LostWorkerError, Ranks

STAGES = ("supervised", "one", "two")
_INSIDE = "inside."


class Log(Protocol):
    """Another place for metrics, such as TensorBoard."""

    def outer(self, fields: Mapping[str, Any], P_u: Tensor, data: PartiallyLabelled) -> None:
        """An outer iteration has ended."""

    def epoch(self, part: str, fields: Mapping[str, Any]) -> None:
        """An epoch has ended."""


class Journal:
    """What one process writes down of a run while it goes on.

    `facts` and `tensors` are all that the stages need to go on after the last checkpoint, and
    `inside` is the state of the descent that was under way. Only rank 0 writes metrics.
    """

    def __init__(
        self,
        directory: Path,
        store: Checkpoints,
        display: Display,
        stop: StopSignals,
        *,
        every: float,
        ranks: Ranks,
        resumed: Checkpoint | None = None,
        identity: Mapping[str, Any] | None = None,
        log: Log | None = None,
        elapsed: Callable[[], float] = lambda: 0.0,
    ) -> None:
        ranks.watch = self.watch
        self.display, self.log, self.ranks = display, log, ranks
        self._metrics = directory / METRICS_FILE if ranks.rank == 0 else None
        self._store, self._stop, self._every, self._elapsed = store, stop, every, elapsed
        self.facts: dict[str, Any] = {
            "stage": STAGES[0],
            "changes": [],
            "scores": [],
            "inner_error": None,
            "costs": {part: {"image_passes": 0, "seconds": 0.0} for part in ("supervised", "saas")},
            "metrics": 0,
            "identity": dict(identity or {}),
        }
        self.is_new = resumed is None
        self.tensors: dict[str, Tensor] = {}
        self.inside: dict[str, Tensor] | None = None
        if resumed is not None:
            self.facts |= resumed.facts
            self.tensors = {n: t for n, t in resumed.tensors.items() if not n.startswith(_INSIDE)}
            self.inside = below(_INSIDE, resumed.tensors) or None
        if self._metrics is not None:
            with self._metrics.open("ab") as file:  # what came after the checkpoint comes again
                file.truncate(self.facts["metrics"])
        self._per_step, self._sgd = 0.0, cast(Descent | None, None)
        self._saved = self._ticked = time.monotonic()

    def cost(self) -> dict[str, Any]:
        """Image passes and seconds of the baseline, or of both phases of SaaS, until now."""
        part = "supervised" if self.facts["stage"] == "supervised" else "saas"
        cost: dict[str, Any] = self.facts["costs"][part]
        now = time.monotonic()
        cost["seconds"] = round(cost["seconds"] + now - self._ticked, 3)
        self._ticked = now
        return cost

    def is_past(self, stage: str) -> bool:
        """Whether an earlier process or this one has ended the stage."""
        return STAGES.index(self.facts["stage"]) > STAGES.index(stage)

    def begin(self, stage: str, passes_per_step: float) -> None:
        """A stage begins, or goes on where an earlier process left it."""
        self._per_step = passes_per_step
        self.display.begin(stage)
        if self.facts["stage"] != stage:
            self.cost()  # the time until now belongs to the stage before
            self.facts |= {"stage": stage, "scores": []}
            self.save()

    def after_step(self, sgd: Descent) -> None:
        """A step has been made: show it, save it from time to time, and stop if that is wanted."""
        self._sgd = sgd
        self.display.step(self._per_step)
        self.watch()
        stopping = self.ranks.any(self._stop.asked is not None)  # all after the same step
        if stopping or self.ranks.any(self.is_due()):
            self.save(sgd)
        if stopping:
            raise RunStoppedError(self._stop.asked or signal.SIGTERM)

    def watch(self) -> None:
        """Between steps and while waiting for others: save and stop if that is called for."""
        try:
            self.ranks.alive()
            if self._stop.asked is not None and not self.ranks.shares_rows:
                raise RunStoppedError(self._stop.asked)
        except (LostWorkerError, RunStoppedError):
            if self._sgd is not None and not self.ranks.shares_rows:
                self.save(self._sgd)  # others that take the same steps could not
            raise

    def is_due(self) -> bool:
        """Whether the last checkpoint is old enough for another one."""
        return time.monotonic() - self._saved > self._every

    def note(self, passes: int, fields: Mapping[str, Any]) -> None:
        """An outer iteration or epoch has ended: one more line of metrics."""
        cost = self.cost()
        cost["image_passes"] += passes
        if self._metrics is not None:
            record = {"phase": self.facts["stage"], **fields, **cost}
            with self._metrics.open("ab") as file:
                file.write(json.dumps(record).encode() + b"\n")
                self.facts["metrics"] = file.tell()

    def save(self, sgd: Descent | None = None) -> None:
        """Write a checkpoint, inside a descent or between two."""
        self.cost()
        self._sgd = sgd
        self.facts |= {"t": sgd.t if sgd else 0, "elapsed": round(self._elapsed(), 3)}
        state = {} if sgd is None else under(_INSIDE, sgd.state())
        self.sync()  # what the checkpoint counts must be there
        self._store.save(self.facts, {**self.tensors, **state})
        self._saved = time.monotonic()

    def sync(self) -> None:
        """Make the metrics as lasting as what refers to them."""
        if self._metrics is not None:
            with self._metrics.open("ab") as file:
                os.fsync(file.fileno())

    def taken_inside(self) -> dict[str, Tensor] | None:
        """The state of the descent to go on with, which is then forgotten here."""
        inside, self.inside = self.inside, None
        return inside


def show_what_is_done(problem: Problem, journal: Journal) -> None:
    """What an earlier process did is on the bars from the start."""
    facts = journal.facts
    journal.display.resume("supervised", facts["costs"]["supervised"]["image_passes"])
    one = problem.passes(problem.settings.inner_epochs * len(facts["changes"])) * problem.ranks.size
    journal.display.resume("one", one)
    if facts["stage"] == "two":
        journal.display.resume("two", problem.passes(len(facts["scores"])) * problem.ranks.sharing)
