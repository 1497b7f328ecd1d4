"""One whole run: the supervised baseline and both phases, measured, shown and written down."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saas_ssl.algorithm import Epoch
from saas_ssl.data.partially_labelled import UNLABELLED, PartiallyLabelled
from saas_ssl.data.source import Skipped
from saas_ssl.images import Form
from saas_ssl.labels import ACCEPT_FROM, label_rows, write_labels
from saas_ssl.model import Model, save
from saas_ssl.pipeline import (
    Problem,
    error_rate,
    infer_posterior,
    initial_posterior,
    predict,
    supervised_epochs,
    train_classifier,
    train_supervised,
    wrong_rows,
)
from saas_ssl.posterior import hard_labels
from saas_ssl.progress import Display
from saas_ssl.randomness import generator_at
from saas_ssl.runs import (
    LABELS_FILE,
    POSTERIOR_FILE,
    SKIPPED_FILE,
    append_metrics,
    save_tensors,
    write_run,
    write_skipped,
)
from saas_ssl.summary import inner_loop_too_short

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
    problem: Problem,
    truth: Truth,
    directory: Path,
    display: Display,
    about: Mapping[str, Any],
    form: Form | None = None,
    features: Sequence[str] | None = None,
    skipped: Sequence[Skipped] = (),
) -> dict[str, Any]:
    """Do everything, write the run directory, and return the results.

    `about` is what run.json says of the request; `form` is that of the images, or `features` the
    names of features, and `skipped` what could not be used.
    """
    data = problem.data
    display.begin("supervised baseline")
    part = Part(directory, display)
    baseline = _train_baseline(problem, part)
    supervised_cost = {"image_passes": part.image_passes, "seconds": part.seconds}

    part = Part(directory, display)
    display.begin("phase one: labels")
    P_u, inner_error = _infer(problem, truth, part)
    inner = {
        "error": inner_error,
        "supervised_error": error_rate(baseline, problem.preprocessing, problem.probe),
        "rows": len(problem.probe.labelled_rows),
    }
    display.say(inner_loop_too_short(inner, problem.settings.inner_epochs))
    display.begin("phase two: classifier")
    classifier, f_u = _train_classifier(problem, P_u, part)
    saas_cost = {"image_passes": part.image_passes, "seconds": part.seconds}

    inferred = hard_labels(P_u)
    write_labels(directory / LABELS_FILE, label_rows(data, inferred, f_u))
    save_tensors(directory / POSTERIOR_FILE, {"P_u": P_u, "rows": _places(data)})
    save(_model(problem, classifier, form, features), directory)
    write_skipped(directory / SKIPPED_FILE, skipped)
    accepted = int((f_u.gather(1, inferred[:, None]).double() >= ACCEPT_FROM).sum())
    results = {
        "supervised": {**_errors(problem, baseline, truth), **supervised_cost},
        "saas": {
            "unlabelled_error": _wrong(inferred, truth.unlabelled),
            "classifier_unlabelled_error": _wrong(f_u.argmax(dim=1), truth.unlabelled),
            **_errors(problem, classifier, truth),
        },
        "inner": inner,
        "validation": _compared(problem, baseline, classifier),
        "accepted": accepted,
        "review": len(inferred) - accepted,
        **saas_cost,
    }
    write_run(directory, {**about, **_described(problem, truth, len(skipped)), "results": results})
    return results


def _described(problem: Problem, truth: Truth, skipped: int) -> dict[str, Any]:
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


def _places(data: PartiallyLabelled) -> Tensor:
    """Where in labels.csv the rows of P_u are."""
    return (data.y[data.rows] == UNLABELLED).nonzero().squeeze(1)


def _model(
    problem: Problem, classifier: nn.Module, form: Form | None, features: Sequence[str] | None
) -> Model:
    settings = problem.settings
    return Model(
        classifier,
        settings.network,
        settings.width,
        tuple(problem.data.x.shape[1:]),
        problem.data.classes,
        problem.preprocessing,
        form,
        features,
    )


def _compared(
    problem: Problem, baseline: nn.Module, classifier: nn.Module
) -> dict[str, int] | None:
    """How the validation rows differ: those that only one of the two gets right."""
    if problem.validation is None:
        return None
    before, after = (
        wrong_rows(network, problem.preprocessing, problem.validation)
        for network in (baseline, classifier)
    )
    return {
        "rows": len(before),
        "mended": int((before & ~after).sum()),
        "broken": int((after & ~before).sum()),
    }


def _train_baseline(problem: Problem, part: Part) -> nn.Module:
    for epoch in train_supervised(problem):
        part.note("supervised", problem.supervised_passes(), **_epoch_fields(epoch))
    return epoch.w


def _infer(problem: Problem, truth: Truth, part: Part) -> tuple[Tensor, float | None]:
    """The posterior, and how wrong the network of the last inner loop ended."""
    P_u, M, inner_error = initial_posterior(problem), problem.settings.outer_iterations, None
    network = problem.new_network(generator_at(problem.seed, "probe"))
    for outer in infer_posterior(problem, P_u):
        P_u = outer.P_u
        wrong = _wrong(hard_labels(P_u), truth.unlabelled)
        network.load_state_dict(outer.w)
        inner_error = error_rate(network, problem.preprocessing, problem.probe)
        part.note(
            "one",
            problem.passes(problem.settings.inner_epochs),
            f"outer {outer.m + 1:>3}/{M}   cumulative loss {outer.cumulative_loss:.3f}   "
            f"changed {outer.changed:6.1%}",
            outer=outer.m,
            cumulative_loss=outer.cumulative_loss,
            changed=outer.changed,
            unlabelled_accuracy=None if wrong is None else 1.0 - wrong,
            inner_error=inner_error,
        )
    return P_u, inner_error


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
