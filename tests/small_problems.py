"""Problems that a test solves in a moment."""

from typing import Any

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.training.presets import Settings
from toy import blobs

FEATURES = Settings(
    network="mlp",
    width=16,
    inner_epochs=2,
    outer_iterations=2,
    batch_size=20,
    posterior_lr=5.0,
    classifier_schedule="triangular",
    classifier_epochs=4,
)


def features(**shape: Any) -> PartiallyLabelled:
    data, _ = blobs(**shape)
    return PartiallyLabelled(data.x.float(), data.y, data.classes, data.ids)


def with_(**changes: Any) -> Settings:
    return FEATURES.changed(**changes)
