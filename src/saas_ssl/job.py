"""One whole run: the supervised baseline and both phases, measured, shown and written down."""

import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saas_ssl.algorithm import Epoch
from saas_ssl.data.partially_labelled import PartiallyLabelled
from saas_ssl.labels import label_rows, write_labels
from saas_ssl.pipeline import (
    Problem,
    error_rate,
    infer_posterior,
    initial_posterior,
    predict,
    supervised_epochs,
    train_classifier,
    train_supervised,
)
from saas_ssl.posterior import hard_labels
from saas_ssl.progress import Display
from saas_ssl.runs import LABELS_FILE, append_metrics, write_run

_AVERAGED_EPOCHS = 5


@dataclass(frozen=True)
class Truth:
    """What is known for measuring only; the algorithm never sees it."""

    unlabelled: Tensor | None = None  # (N_u,) labels of the unlabelled rows
    test: PartiallyLabelled | None = None  # touched once, at the end


class Part:
    """The cost and the metrics of one part of a run: the baseline, or SaaS."""

    def __init__(self, directory: Path, display: Display) -> None:
        self.image_passes = 0
        self._directory, self._display, self._start = directory, display, time.monotonic()

    @property
    def seconds(self) -> float:
        """Since this part began."""
        return round(time.monotonic() - self._start, 3)

    def note(self, phase: str, passes: int, line: str = "", **fields: Any) -> None:
        """An outer iteration or epoch has ended: a line of metrics, and progress for people."""
        self.image_passes += passes
        costs = {"image_passes": self.image_passes, "seconds": self.seconds}
        append_metrics(self._directory, {"phase": phase, **fields, **costs})
        self._display.advance(passes, line)


def total_image_passes(problem: Problem) -> int | None:
    """Images that the whole run takes through networks; unknown if phase two has no set length."""
    settings = problem.settings
    if settings.classifier_schedule == "halving":
        return None
    return (
        problem.passes(settings.outer_iterations * settings.inner_epochs)
        + problem.passes(settings.classifier_epochs)
        + problem.supervised_passes(supervised_epochs(problem))
    )


def run_job(
    problem: Problem, truth: Truth, source: str, directory: Path, display: Display
) -> dict[str, Any]:
    """Do everything, write run.json, metrics.jsonl and labels.csv, and return the results."""
    display.begin("supervised baseline")
    part = Part(directory, display)
    baseline = _train_baseline(problem, part)
    supervised_cost = {"image_passes": part.image_passes, "seconds": part.seconds}

    part = Part(directory, display)
    display.begin("phase one: labels")
    P_u = _infer(problem, truth, part)
    display.begin("phase two: classifier")
    classifier, f_u = _train_classifier(problem, P_u, part)
    saas_cost = {"image_passes": part.image_passes, "seconds": part.seconds}

    data, inferred = problem.data, hard_labels(P_u)
    rows = list(label_rows(data, inferred, f_u))
    write_labels(directory / LABELS_FILE, rows)
    results = {
        "supervised": {**_errors(problem, baseline, truth), **supervised_cost},
        "saas": {
            "unlabelled_error": _wrong(inferred, truth.unlabelled),
            "classifier_unlabelled_error": _wrong(f_u.argmax(dim=1), truth.unlabelled),
            **_errors(problem, classifier, truth),
        },
        **saas_cost,
    }
    write_run(
        directory,
        {
            "config": problem.settings.model_dump(),
            "effective_step": problem.effective_step,
            "seed": problem.seed,
            "data": {
                "source": source,
                "fingerprint": data.fingerprint(),
                "classes": list(data.classes),
                "labelled": len(problem.training.labelled_rows),
                "unlabelled": len(data.unlabelled_rows),
                "validation": len(problem.validation.y) if problem.validation else 0,
                "test": len(truth.test.y) if truth.test else 0,
            },
            "results": results,
        },
    )
    return results


def _train_baseline(problem: Problem, part: Part) -> nn.Module:
    for epoch in train_supervised(problem):
        part.note("supervised", problem.supervised_passes(), **_epoch_fields(epoch))
    return epoch.w


def _infer(problem: Problem, truth: Truth, part: Part) -> Tensor:
    P_u, M = initial_posterior(problem), problem.settings.outer_iterations
    for outer in infer_posterior(problem, P_u):
        P_u = outer.P_u
        wrong = _wrong(hard_labels(P_u), truth.unlabelled)
        part.note(
            "one",
            problem.passes(problem.settings.inner_epochs),
            f"outer {outer.m + 1:>3}/{M}   cumulative loss {outer.cumulative_loss:.3f}   "
            f"changed {outer.changed:6.1%}",
            outer=outer.m,
            cumulative_loss=outer.cumulative_loss,
            changed=outer.changed,
            unlabelled_accuracy=None if wrong is None else 1.0 - wrong,
        )
    return P_u


def _train_classifier(problem: Problem, P_u: Tensor, part: Part) -> tuple[nn.Module, Tensor]:
    """The classifier, and its softmax on the unlabelled rows averaged over the last epochs."""
    states = deque[dict[str, Tensor]](maxlen=_AVERAGED_EPOCHS)
    for epoch in train_classifier(problem, P_u):
        part.note("two", problem.passes(), **_epoch_fields(epoch))
        states.append({name: tensor.clone() for name, tensor in epoch.w.state_dict().items()})
    data, f_u = problem.training, torch.zeros(P_u.shape)
    for state in states:
        epoch.w.load_state_dict(state)  # the last one leaves the network as it was
        f_u += predict(epoch.w, problem.preprocessing, data.x, data.unlabelled_rows) / len(states)
    return epoch.w, f_u


def _epoch_fields(epoch: Epoch) -> dict[str, Any]:
    return {"epoch": epoch.n, "loss": epoch.loss, "rate": epoch.rate, "score": epoch.score}


def _errors(problem: Problem, network: nn.Module, truth: Truth) -> dict[str, float | None]:
    return {
        name: None if data is None else error_rate(network, problem.preprocessing, data)
        for name, data in (("validation_error", problem.validation), ("test_error", truth.test))
    }


def _wrong(labels: Tensor, true_labels: Tensor | None) -> float | None:
    return None if true_labels is None else (labels != true_labels).double().mean().item()
