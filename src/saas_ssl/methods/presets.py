"""Settings of each method by name: `original`, those of its own code, and `small`, for CPUs."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.methods import METHODS
from saas_ssl.methods.settings import Budget
from saas_ssl.training.automatic import automatic
from saas_ssl.training.presets import Settings, named_preset

_LAINE = {
    "optimiser": "adam",
    "lr": 0.003,
    "final_momentum": 0.5,
    "weight_decay": 0.0,
    "schedule": "ramps",
    "noise": 0.15,
    "labelled_batch": 100,
    "unlabelled_batch": 100,
}
_VAT = {"epsilon": 8.0, "xi": 1e-6}
_MATCH = {
    "lr": 0.03,
    "weight_decay": 5e-4,
    "schedule": "cosine",
    "average": 0.999,
    "labelled_batch": 64,
    "unlabelled_batch": 448,
}
ORIGINAL: dict[str, dict[str, Any]] = {
    "supervised": {
        "optimiser": "adam",
        "lr": 0.003,
        "weight_decay": 0.0,
        "schedule": "linear-end",
        "labelled_batch": 100,
    },
    "saas": {},
    "saas_vat": _VAT,
    "vat": _VAT
    | {
        "optimiser": "adam",
        "lr": 0.001,
        "weight_decay": 0.0,
        "schedule": "linear-end",
        "labelled_batch": 32,
        "unlabelled_batch": 128,
    },
    "stochastic_transformations": {
        "lr": 0.1,
        "schedule": "linear-end",
        "labelled_batch": 100,
        "unlabelled_batch": 100,
    },
    "temporal_ensembling": _LAINE,
    "pi_model": _LAINE,
    "mean_teacher": _LAINE | {"final_momentum": None},
    "gan_feature_matching": {
        "augmentation": "none",
        "optimiser": "adam",
        "lr": 3e-4,
        "momentum": 0.5,
        "weight_decay": 0.0,
        "schedule": "linear-end",
        "average": 0.9999,
        "labelled_batch": 100,
        "unlabelled_batch": 100,
    },
    "pseudo_label": {
        "labelled_batch": 32,
        "unlabelled_batch": 256,
        "lr": 1.5,
        "momentum": 0.5,
        "schedule": "linear-end",
    },
    "fixmatch": _MATCH,
    "freematch": _MATCH,
}
SMALL: dict[str, dict[str, Any]] = {  # what was tuned is in benchmarks/tuning.py
    "supervised": {"view": "strong", "weight_decay": 5e-4},
    "saas": {},
    "saas_vat": {"classifier_augmentation": "same", "relative_epsilon": 0.1},
    "vat": {"relative_epsilon": 0.2},
    "stochastic_transformations": {"views": 3},
    "temporal_ensembling": {"consistency": 30.0},
    "pi_model": {"consistency": 100.0},
    "mean_teacher": {"consistency": 30.0, "early_decay": 0.95, "decay": 0.99},
    "gan_feature_matching": {
        "optimiser": "adam",
        "lr": 0.01,
        "momentum": 0.5,
        "weight_decay": 0.0,
        "generator_lr": 1e-3,
        "generator_width": 8,
    },
    "pseudo_label": {"alpha_f": 1.0},
    "fixmatch": {"threshold": 0.8, "average": 0.99},
    "freematch": {"average": 0.99, "decay": 0.99},
}
SMALL_COLOUR: dict[str, dict[str, Any]] = {  # what images in colour change of it
    "supervised": {"view": "weak"},
    "saas": {"labelled_batch_size": 50},
    "saas_vat": {"relative_epsilon": 0.05},
    "vat": {"relative_epsilon": 0.05},
    "stochastic_transformations": {},
    "temporal_ensembling": {"consistency": 10.0},
    "pi_model": {"consistency": 30.0},
    "mean_teacher": {"consistency": 10.0},
    "gan_feature_matching": {"adversarial_weight": 0.3},
    "pseudo_label": {"alpha_f": 0.3},
    "fixmatch": {"labelled_batch": 50},
    "freematch": {"labelled_batch": 50},
}


def small(
    name: str, data: PartiallyLabelled, budget: Mapping[str, float], given: Mapping[str, Any]
) -> Budget:
    """Settings that were tuned to work in minutes on a CPU; docs/comparison.md.

    ε grows with the norm of a standardised input: what is given is `relative_epsilon`, ε over that
    norm, of which ξ is a hundredth.
    """
    in_shape = tuple(data.x.shape[1:])
    kind = METHODS[name].settings
    own = {**SMALL[name], **(SMALL_COLOUR[name] if _in_colour(in_shape) else {}), **given}
    base: dict[str, Any] = _common(in_shape)
    if issubclass(kind, Settings):
        N_l, N_u = len(data.labelled_rows), len(data.unlabelled_rows)
        # All of a budget that may be small is for the two phases.
        base = automatic(in_shape, N_l, N_u, initial_posterior="uniform").model_dump()
    if "epsilon" in kind.model_fields:
        norm = math.sqrt(math.prod(in_shape))
        base |= {"epsilon": own.pop("relative_epsilon") * norm, "xi": 0.01 * norm}
    return kind.model_validate({**base, **own, **budget})


def original(
    name: str, data: PartiallyLabelled, budget: Mapping[str, float], given: Mapping[str, Any]
) -> Budget:
    """Settings of the original implementation."""
    kind = METHODS[name].settings
    base = _common(tuple(data.x.shape[1:]))
    if issubclass(kind, Settings):
        base = named_preset("paper-cifar10").model_dump()
    return kind.model_validate({**base, **ORIGINAL[name], **given, **budget})


def _common(in_shape: tuple[int, ...]) -> dict[str, Any]:
    """How rows of this shape are seen, unless a method has its own way."""
    if len(in_shape) == 1:
        return {"augmentation": "none", "noise": 0.3}
    return {"augmentation": "cifar10" if _in_colour(in_shape) else "digits"}


def _in_colour(in_shape: tuple[int, ...]) -> bool:
    return len(in_shape) == 3 and in_shape[0] == 3


Choose = Callable[[str, PartiallyLabelled, Mapping[str, float], Mapping[str, Any]], Budget]
"""(Method, data, budget, what is given) -> settings."""

PRESETS: dict[str, Choose] = {"small": small, "original": original}
