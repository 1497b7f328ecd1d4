"""One cell of a comparison: one method on one labelled set, trained and measured."""

import time
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, PositiveInt

from saas_ssl.labelling.request import Prepared, Request, found, read_all
from saas_ssl.methods.fitting import as_told, default_network, run, settings_of
from saas_ssl.methods.settings import Budget
from saas_ssl.training.outputs import error_rate


class Conditions(BaseModel):
    """What all cells of a comparison have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    request: Request
    network: str | None = None  # none: by the kind of data
    width: PositiveInt | None = None
    budget: dict[str, float]  # passes or seconds
    preset: str = "small"
    given: dict[str, dict[str, Any]] = {}  # settings by method
    device: str = "cpu"
    threads: PositiveInt = 1


def cell_settings(conditions: Conditions, method: str, all_: Prepared) -> Budget:
    """The settings of a method under these conditions."""
    given = conditions.given.get(method, {})
    return settings_of(method, conditions.preset, all_.data, conditions.budget, given)


def run_cell(conditions: Conditions, method: str, seed: int, cache: Path) -> dict[str, Any]:
    """Train, and only then measure: errors of the final model, where the truth is known."""
    torch.set_num_threads(conditions.threads)
    source, test = found(conditions.request)
    # The seed decides which labels are kept, for all methods alike.
    all_ = read_all(conditions.request, source, test, seed, cache, progress=lambda _done: None)
    data, truth = all_.data, all_.truth
    settings = cell_settings(conditions, method, all_)
    start = time.monotonic()
    network = conditions.network or default_network(data)
    trained = run(method, data, network, conditions.width, settings, seed, conditions.device)
    seconds = time.monotonic() - start
    hidden = None
    if truth.unlabelled is not None:
        y = torch.full_like(data.y, -1)
        y[data.unlabelled_rows] = truth.unlabelled
        hidden = data.with_labels(y)
    errors = {
        name: None if rows is None else error_rate(trained.network, trained.preprocessing, rows)
        for name, rows in (("test_error", truth.test), ("unlabelled_error", hidden))
    }
    return {
        "method": method,
        "seed": seed,
        **errors,
        "passes": round(trained.history[-1]["passes"]),
        "seconds": round(seconds, 2),
        "labelled_rows": data.labelled_rows.tolist(),
        "settings": as_told(settings),
        "history": trained.history,
    }
