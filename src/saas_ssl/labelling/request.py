"""The data that `saas label` is asked for, found and read, and the truth where it is known."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError
from torch import Tensor

from saas_ssl.algorithm.partially_labelled import UNLABELLED, PartiallyLabelled
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.data.splits import keep_labels
from saas_ssl.images.cache import Progress
from saas_ssl.sources.finding import find
from saas_ssl.sources.reading import Reading, read_source
from saas_ssl.sources.source import Skipped, Source, in_order
from saas_ssl.sources.wording import some
from saas_ssl.training.choosing import plainly
from saas_ssl.training.presets import Settings
from saas_ssl.trust.judging import Scrutiny

LEAST_LABELS = 2


class Request(BaseModel):
    """The data of a run as asked for, in run.json too so that it can be asked for again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str
    labels: str | None = None
    image_size: PositiveInt | None = None
    keep_labels: PositiveInt | None = None
    unlabelled: PositiveInt | None = None
    test: str | None = None


@dataclass(frozen=True)
class Truth:
    """What is known for measuring only; the algorithm never sees it."""

    unlabelled: Tensor | None = None  # (N_u,) labels of the unlabelled rows
    test: PartiallyLabelled | None = None  # touched once, at the end


@dataclass(frozen=True)
class Prepared:
    """Everything that a request names, read."""

    data: PartiallyLabelled
    truth: Truth
    reading: Reading  # where the data came from: the same rows, but with all labels


def shared_rows(test: PartiallyLabelled, data: PartiallyLabelled) -> int:
    """How many rows of the test data are also used in training, value for value."""
    seen = {hash(data.x[row].numpy().tobytes()) for row in data.rows.tolist()}
    return sum(hash(test.x[row].numpy().tobytes()) in seen for row in test.rows.tolist())


def found(request: Request) -> tuple[Source, Source | None]:
    """The sources of the data and of the test data; what is wrong with either is told at once."""
    source = find(request.data, None if request.labels is None else Path(request.labels))
    if request.unlabelled is not None and request.keep_labels is None:
        raise ValueError("a number of unlabelled rows can be chosen only with --keep-labels")
    if request.keep_labels is None:
        _check_labels(source)
    return source, None if request.test is None else find(request.test)


def read_all(
    request: Request,
    source: Source,
    test_source: Source | None,
    seed: int,
    cache: Path,
    progress: Progress,
    shared: bool = False,
) -> Prepared:
    """Decode the data and the test data, and hide labels if the request says so.

    Where several processes read them, they must be `shared`: one map for all.
    """
    reading = read_source(source, request.image_size, cache=cache, progress=progress, shared=shared)
    data, truth = reading.data, Truth()
    if request.keep_labels is not None:
        full, generator = data, generator_at(seed, "kept labels")
        data = keep_labels(full, request.keep_labels, generator, request.unlabelled)
        truth = Truth(unlabelled=full.y[data.unlabelled_rows])
    _check_counts(data)
    if test_source is not None:
        test = read_test(test_source, reading, cache)
        skipped = [Skipped(f"test: {row.id}", row.reason) for row in test.skipped]
        reading = replace(reading, skipped=[*reading.skipped, *skipped])
        truth = Truth(truth.unlabelled, test.data)
    return Prepared(data, truth, reading)


def read_test(source: Source, trained: Reading, cache: Path) -> Reading:
    """Test data in the form, the order of features and of classes, of the data trained on."""
    try:
        return _in_form_of(trained, source, cache)
    except ValueError as error:
        raise ValueError(f"test data: {error}") from None


def _in_form_of(trained: Reading, source: Source, cache: Path) -> Reading:
    if isinstance(source.rows, Tensor) and source.rows.ndim == 2 and trained.form is None:
        n = trained.data.x.shape[1]
        x = in_order(source.rows, source.features, trained.features, n)
        source = replace(source, rows=x, features=trained.features)
    test = read_source(source, form=trained.form, cache=cache)
    if test.data.x.shape[1:] != trained.data.x.shape[1:]:
        raise ValueError("they are images, but the data are features")
    return replace(test, data=_with_classes(test.data, trained.data.classes))


def repeated(path: Path) -> tuple[Request, Settings, int, Scrutiny]:
    """The request, the settings, the seed and the checks of an earlier run, from its run.json."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        settings = Settings.model_validate(record["config"])
        request = Request.model_validate(record["request"])
        # Runs of earlier versions left no labels out.
        scrutiny = Scrutiny.model_validate(record.get("scrutiny", {"label_folds": 0}))
        return request, settings, int(record["seed"]), scrutiny
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except ValidationError as error:
        raise ValueError(f"{path}: {plainly(error)}") from None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise ValueError(f"{path} is not the run.json of a run of saas label") from None


def _check_labels(source: Source) -> None:
    """Tell of labels that cannot work before any image is decoded."""
    if source.classes and None not in source.labels:
        raise ValueError(
            f"all {len(source.ids)} rows have a label, so there is nothing to infer: leave some "
            "without one, or give --keep-labels N to hide all but N and see how well it does"
        )
    _check_enough({name: source.labels.count(name) for name in source.classes})


def _check_counts(data: PartiallyLabelled) -> None:
    """The same once images are decoded, since some may have been skipped."""
    counts = torch.bincount(data.y[data.labelled_rows], minlength=data.n_classes).tolist()
    _check_enough(dict(zip(data.classes, counts, strict=True)))
    if not (data.y == UNLABELLED).any():
        raise ValueError("no unlabelled row is left: there is nothing to infer")


def _check_enough(counts: Mapping[str, int]) -> None:
    few = [f"{name!r} ({count})" for name, count in counts.items() if count < LEAST_LABELS]
    if few and len(counts) > 1:
        raise ValueError(
            f"these classes have fewer than {LEAST_LABELS} labels: {some(few)}; label more of "
            "them, or remove the class"
        )


def _with_classes(test: PartiallyLabelled, classes: Sequence[str]) -> PartiallyLabelled:
    """Test data whose labels are numbered as those of the training data."""
    strange = [repr(name) for name in test.classes if name not in classes]
    if strange:
        raise ValueError(f"they have classes that the data have not: {some(strange)}")
    number = torch.tensor([*(classes.index(name) for name in test.classes), UNLABELLED])
    return PartiallyLabelled(test.x, number[test.y], classes, test.ids)
