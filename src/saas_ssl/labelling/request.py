"""What `saas label` is asked for: the data, found and read, and the settings for them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError
from torch import Tensor

from saas_ssl.algorithm.partially_labelled import UNLABELLED, PartiallyLabelled
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.data.splits import keep_labels
from saas_ssl.images.cache import Progress
from saas_ssl.labelling.job import Truth
from saas_ssl.sources.reading import Reading, find, read_source
from saas_ssl.sources.source import Skipped, Source, counted, in_order, some
from saas_ssl.training.pipeline import Problem
from saas_ssl.training.presets import Settings, automatic
from saas_ssl.trust.judging import Scrutiny
from saas_ssl.vision.augment import named_recipe
from saas_ssl.vision.networks import named_factory

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
class Prepared:
    """Everything that a request names, read."""

    data: PartiallyLabelled
    truth: Truth
    reading: Reading  # where the data came from: the same rows, but with all labels


def shared_rows(test: PartiallyLabelled, data: PartiallyLabelled) -> int:
    """How many rows of the test data are also used in training, value for value."""
    seen = {hash(data.x[row].numpy().tobytes()) for row in data.rows.tolist()}
    return sum(hash(test.x[row].numpy().tobytes()) in seen for row in test.rows.tolist())


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


def chosen_settings(
    data: PartiallyLabelled, base: Settings | None, given: Mapping[str, Any]
) -> Settings:
    """The base settings, or without any those that suit the data, but for what is given."""
    try:
        if base is not None:
            return base.changed(**given)
        shape, labelled = tuple(data.x.shape[1:]), len(data.labelled_rows)
        return automatic(shape, labelled, len(data.unlabelled_rows), **given)
    except ValidationError as error:
        raise ValueError(plainly(error)) from None


def checked(base: Settings | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """What is given, as the types it must have; refused before any image is decoded."""
    try:
        settings = (base or Settings(classifier_schedule="triangular")).changed(**given)
    except ValidationError as error:
        raise ValueError(plainly(error)) from None
    named_factory(settings.network)
    named_recipe(settings.augmentation)
    if settings.classifier_augmentation not in ("same", "strong"):
        named_recipe(settings.classifier_augmentation)
    return {name: getattr(settings, name) for name in given}


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


def setting(text: str) -> tuple[str, Any]:
    """name=value -> (name, value); numbers, true, false and none by what they mean."""
    name, equals, value = text.partition("=")
    name, value = name.strip().replace("-", "_"), value.strip()
    if not equals or not name:
        raise ValueError(f"{text!r} is not of the form name=value")
    field = Settings.model_fields.get(name)
    if value == "none" and field is not None and type(None) in get_args(field.annotation):
        return name, None
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


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


def plainly(error: ValidationError) -> str:
    """The first of pydantic's complaints as a sentence."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"there is no setting {name!r}: choose one of {', '.join(Settings.model_fields)}"
    message = first["msg"].removeprefix("Value error, ")
    if not name:  # about several settings at once
        return message
    return f"{name}: {message[0].lower()}{message[1:]}, not {first['input']!r}"
