"""Any method in one call on arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from saas_ssl.algorithm.partially_labelled import UNLABELLED, PartiallyLabelled
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.data.arrays import as_labels, as_rows
from saas_ssl.images.form import Form
from saas_ssl.methods import METHODS
from saas_ssl.methods.presets import PRESETS
from saas_ssl.methods.saas import DECIDED_ELSEWHERE, Saas
from saas_ssl.methods.settings import Budget
from saas_ssl.methods.spending import Line
from saas_ssl.methods.training import Trained
from saas_ssl.runs.model import Model
from saas_ssl.sources.source import class_names
from saas_ssl.training.devices import find_place
from saas_ssl.vision.networks import build, named_factory


def fit(
    method: str,
    x: Any,
    y: Any,
    *,
    passes: float | None = None,
    seconds: float | None = None,
    network: str | None = None,
    width: int | None = None,
    preset: str = "small",
    seed: int = 0,
    device: str = "cpu",
    **settings: Any,
) -> tuple[Model, list[Line]]:
    """(A classifier, the history of its training) by any method, from arrays and a budget.

    `x` are images (N, H, W), (N, H, W, C) or (N, C, H, W), or features (N, D); `y` has a number or
    a name for each row, and -1, NaN or empty text where the label is not known. The network is
    small_conv for images and mlp for features unless another one is named.
    """
    rows = as_rows(x if isinstance(x, Tensor) else np.asarray(x))
    labels = as_labels(np.asarray(y), len(rows))
    classes = class_names(labels)
    number = {name: k for k, name in enumerate(classes)}
    y_known = torch.tensor([UNLABELLED if name is None else number[name] for name in labels])
    data = PartiallyLabelled(rows, y_known, classes, [str(row) for row in range(len(rows))])
    budget = {
        kind: amount
        for kind, amount in (("passes", passes), ("seconds", seconds))
        if amount is not None
    }
    network = network or default_network(data)
    chosen = settings_of(method, preset, data, budget, settings)
    trained = run(method, data, network, width, chosen, seed, device)
    shape = tuple(rows.shape[1:])
    form = Form(shape[1], shape[2], shape[0]) if rows.ndim == 4 else None
    model = Model(trained.network, network, width, shape, classes, trained.preprocessing, form)
    return model, trained.history


def settings_of(
    method: str,
    preset: str,
    data: PartiallyLabelled,
    budget: Mapping[str, float],
    given: Mapping[str, Any],
) -> Budget:
    """The settings of a method for these data, or one sentence about what is wrong with them."""
    check_method(method)
    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}: choose one of {', '.join(PRESETS)}")
    fixed = DECIDED_ELSEWHERE if issubclass(METHODS[method].settings, Saas) else frozenset()
    if nowhere := sorted(fixed.intersection(given)):
        raise ValueError(f"{method}: {nowhere[0]} cannot be set where methods are compared")
    try:
        return PRESETS[preset](method, data, budget, given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            fields = ", ".join(METHODS[method].settings.model_fields)
            raise ValueError(f"{method} has no setting {name!r}, but {fields}") from None
        message = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{method}: {name + ': ' if name else ''}{message}") from None


def as_told(settings: Budget) -> dict[str, Any]:
    """The settings that make a difference, as JSON holds them."""
    exclude = set(DECIDED_ELSEWHERE) if isinstance(settings, Saas) else None
    return settings.model_dump(mode="json", exclude=exclude)


def default_network(data: PartiallyLabelled) -> str:
    """The name of the network for such rows."""
    return "small_conv" if data.x.ndim == 4 else "mlp"


def check_method(name: str) -> None:
    """Raise ValueError unless there is such a method."""
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}: choose one of {', '.join(METHODS)}")


def run(
    method: str,
    data: PartiallyLabelled,
    network: str,
    width: int | None,
    settings: Budget,
    seed: int,
    device: str,
) -> Trained:
    """Train by a method, with a network of ours by its name."""
    place, factory = find_place(device, "fp32", compiled=False), named_factory(network, width)
    shape, K = tuple(data.x.shape[1:]), data.n_classes
    return METHODS[method].train(
        data,
        lambda generator: build(factory, shape, K, generator, place.device),
        settings,
        generator_at(seed, "method", method),
    )
