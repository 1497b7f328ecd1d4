"""saas-ssl labels the rest: semi-supervised learning with SaaS, Speed as a Supervisor.

The public names are imported when they are first used, so that the command line starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saas_ssl.algorithm.partially_labelled import PartiallyLabelled as PartiallyLabelled
    from saas_ssl.algorithm.phases import Epoch as Epoch
    from saas_ssl.algorithm.phases import Outer as Outer
    from saas_ssl.algorithm.phases import phase_one as phase_one
    from saas_ssl.algorithm.phases import phase_two as phase_two
    from saas_ssl.algorithm.randomness import generator_at as generator_at
    from saas_ssl.algorithm.simplex import project as project
    from saas_ssl.data.splits import hold_out as hold_out
    from saas_ssl.data.splits import keep_labels as keep_labels
    from saas_ssl.estimator.classifier import SaaSClassifier as SaaSClassifier
    from saas_ssl.exporting import export as export
    from saas_ssl.methods.fitting import fit as fit
    from saas_ssl.runs.model import Model as Model
    from saas_ssl.runs.model import load as load
    from saas_ssl.sources.digits import read_digits as read_digits
    from saas_ssl.sources.reading import read as read
    from saas_ssl.training.automatic import automatic as automatic
    from saas_ssl.training.outputs import error_rate as error_rate
    from saas_ssl.training.outputs import predict as predict
    from saas_ssl.training.pipeline import infer_posterior as infer_posterior
    from saas_ssl.training.pipeline import train_classifier as train_classifier
    from saas_ssl.training.pipeline import train_supervised as train_supervised
    from saas_ssl.training.presets import Settings as Settings
    from saas_ssl.training.presets import named_preset as named_preset
    from saas_ssl.training.problem import prepare as prepare
    from saas_ssl.vision.augment import augmented_view as augmented_view
    from saas_ssl.vision.augment import fit_preprocessing as fit_preprocessing
    from saas_ssl.vision.augment import named_recipe as named_recipe
    from saas_ssl.vision.embedding import embed as embed
    from saas_ssl.vision.networks import build as build
    from saas_ssl.vision.networks import named_factory as named_factory

_NAMES = {
    "algorithm.partially_labelled": "PartiallyLabelled",
    "algorithm.phases": "Epoch Outer phase_one phase_two",
    "algorithm.randomness": "generator_at",
    "algorithm.simplex": "project",
    "data.splits": "hold_out keep_labels",
    "estimator.classifier": "SaaSClassifier",
    "exporting": "export",
    "methods.fitting": "fit",
    "runs.model": "Model load",
    "sources.digits": "read_digits",
    "sources.reading": "read",
    "training.automatic": "automatic",
    "training.outputs": "error_rate predict",
    "training.pipeline": "infer_posterior train_classifier train_supervised",
    "training.presets": "Settings named_preset",
    "training.problem": "prepare",
    "vision.augment": "augmented_view fit_preprocessing named_recipe",
    "vision.embedding": "embed",
    "vision.networks": "build named_factory",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
