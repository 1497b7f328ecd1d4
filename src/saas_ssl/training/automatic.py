"""Settings that follow from the data; docs/defaults.md derives each number."""

import math
from typing import Any

from saas_ssl.training.presets import Settings

_LABELLED_EPOCHS, _LEAST_STEPS = 75, 100  # of an inner loop
_FEW_FEATURES, _STEPS_OF_FEW = 8, 300  # what they have to tell takes longer to learn


def automatic(in_shape: tuple[int, ...], N_l: int, N_u: int, **given: Any) -> Settings:
    """Settings for rows of this shape, so many with a label and so many without, around the given.

    The posterior becomes as good as the networks of the inner loop, so T is long enough for them to
    see every labelled row 75 times; docs/defaults.md derives each number. Where every row has a
    label, those rows stand in for the others.
    """
    if N_l == 0:
        raise ValueError("settings can be derived only where some rows are labelled")
    N_u = N_u or N_l
    images, colour = len(in_shape) == 3, in_shape[0] == 3
    B = given.get("batch_size") or min(50, N_u)
    most = N_l if N_l < 40 else N_l // 2  # validation may take its share
    B_l = given.get("labelled_batch_size") or min(most, 4 * B, max(25, math.ceil(B * N_l / N_u)))
    steps = math.ceil(N_u / B)  # in an epoch
    few = not images and in_shape[0] < _FEW_FEATURES
    least = _STEPS_OF_FEW if few else _LEAST_STEPS
    T = given.get("inner_epochs") or max(
        2, math.ceil(least / steps), math.ceil(_LABELLED_EPOCHS * N_l / (B_l * steps))
    )
    settings = {
        "network": "small_conv" if images else "mlp",
        "augmentation": _augmentation(images, colour, few),
        "classifier_augmentation": "strong" if images and not colour else "same",
        "inner_epochs": T,
        "outer_iterations": max(2, min(6, math.ceil(72 / T))),
        "batch_size": B,
        "labelled_batch_size": B_l,
        "weight_lr": 0.1,
        "posterior_lr": B / T,  # an effective step of 1
        "inner_schedule": "triangular",
        "initial_posterior": "uniform" if images else "supervised",
        "langevin_temperature": 0.0,
        "classifier_schedule": "triangular",
        "classifier_epochs": max(8, T, math.ceil(4 * _LEAST_STEPS / steps)),
        "classifier_lr": 0.1,
        "classifier_weight_decay": 1e-4,
    }
    return Settings.model_validate({**settings, **given})


def _augmentation(images: bool, colour: bool, few: bool) -> str:
    if images:
        return "cifar10" if colour else "digits"
    return "few-features" if few else "features"
