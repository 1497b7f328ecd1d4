"""What a run leaves: labels and a classifier, and how good they are if that can be measured."""

from pathlib import Path

from torch import Tensor, nn

from saas_ssl.algorithm.network import unwrapped
from saas_ssl.algorithm.partially_labelled import UNLABELLED, PartiallyLabelled
from saas_ssl.algorithm.posterior import hard_labels
from saas_ssl.images.pictures import as_picture
from saas_ssl.images.pixels import only_bombs_noticed
from saas_ssl.labelling.request import Truth
from saas_ssl.report import Thumbnail
from saas_ssl.runs.files import LABELS_FILE, POSTERIOR_FILE, save_tensors
from saas_ssl.runs.labels import write_labels
from saas_ssl.runs.model import Model
from saas_ssl.sources.reading import Reading
from saas_ssl.sources.source import pixels_of
from saas_ssl.training.outputs import error_rate, last_features, wrong_rows
from saas_ssl.training.problem import Problem
from saas_ssl.trust.decisions import label_rows
from saas_ssl.trust.judging import Trust, all_probabilities, doubts
from saas_ssl.trust.ranking import candidates, review_order

_THUMBNAIL_SIDE = 96


def order_of_review(
    problem: Problem, trust: Trust, inferred: Tensor, classifier: nn.Module
) -> Tensor:
    """The rows of labels.csv, those first that are most worth a look."""
    data, x = problem.data, problem.training.x
    u = doubts(trust, data, inferred)[data.rows]
    h, h_known = (
        last_features(classifier, problem.preprocessing, x, rows)
        for rows in (data.rows[candidates(u)], data.labelled_rows)
    )
    return review_order(u, h, h_known)


def thumbnails(data: PartiallyLabelled, reading: Reading | None) -> Thumbnail | None:
    """Small pictures of the rows of labels.csv, from where they came from if that is known."""
    if data.x.ndim == 2:
        return None
    white = 255 if reading is None or reading.form is None else reading.form.white

    def thumbnail(place: int) -> tuple[bytes, str] | None:
        row = int(data.rows[place])
        try:
            found = reading.image(row) if reading and reading.image else pixels_of(data.x[row])
            with only_bombs_noticed():
                return as_picture(found, _THUMBNAIL_SIDE, white)
        except Exception:  # decoders of broken files raise anything; this one was whole before
            return None

    return thumbnail


def write_label_files(
    problem: Problem, P_u: Tensor, trust: Trust, order: Tensor, accept: float, directory: Path
) -> None:
    """Write labels.csv, and what it was made of."""
    data, inferred = problem.data, hard_labels(P_u)
    rows = label_rows(data, inferred, trust.p_u, accept, trust.outliers, trust.suspects)
    write_labels(directory / LABELS_FILE, rows)
    tensors = {
        "P_u": P_u,
        "rows": _places(data),
        "probabilities": all_probabilities(trust, data, problem.training.labelled_rows),
        "strangeness": trust.strangeness,
        "review_order": order,
        "reviewed": problem.reviewed[data.rows],
    }
    save_tensors(directory / POSTERIOR_FILE, tensors)


def _places(data: PartiallyLabelled) -> Tensor:
    """Where in labels.csv the rows of P_u are."""
    return (data.y[data.rows] == UNLABELLED).nonzero().squeeze(1)


def model_of(problem: Problem, classifier: nn.Module, reading: Reading | None) -> Model:
    """The classifier with all that it needs to see new rows as it saw those of the run."""
    settings = problem.settings
    return Model(
        unwrapped(classifier),
        settings.network,
        settings.width,
        tuple(problem.data.x.shape[1:]),
        problem.data.classes,
        problem.preprocessing,
        reading.form if reading else None,
        reading.features if reading else None,
    )


def compared(problem: Problem, baseline: nn.Module, classifier: nn.Module) -> dict[str, int] | None:
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


def errors(problem: Problem, network: nn.Module, truth: Truth) -> dict[str, float | None]:
    """The errors of a network on rows that no training has seen."""
    return {
        name: None if data is None else error_rate(network, problem.preprocessing, data)
        for name, data in (("validation_error", problem.validation), ("test_error", truth.test))
    }


def share_wrong(labels: Tensor, true_labels: Tensor | None) -> float | None:
    """How many of the labels are wrong, where the truth is known."""
    return None if true_labels is None else (labels != true_labels).double().mean().item()
