"""saas-ssl labels the rest: semi-supervised learning with SaaS, Speed as a Supervisor.

The public names are imported when they are first used, so that the command line starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saas_ssl.algorithm import Epoch as Epoch
    from saas_ssl.algorithm import Outer as Outer
    from saas_ssl.algorithm import phase_one as phase_one
    from saas_ssl.algorithm import phase_two as phase_two
    from saas_ssl.augment import augmented_view as augmented_view
    from saas_ssl.augment import fit_preprocessing as fit_preprocessing
    from saas_ssl.augment import named_recipe as named_recipe
    from saas_ssl.data import PartiallyLabelled as PartiallyLabelled
    from saas_ssl.data import hold_out as hold_out
    from saas_ssl.data import keep_labels as keep_labels
    from saas_ssl.data import read as read
    from saas_ssl.data import read_digits as read_digits
    from saas_ssl.embedding import embed as embed
    from saas_ssl.estimator import SaaSClassifier as SaaSClassifier
    from saas_ssl.exporting import export as export
    from saas_ssl.methods.fitting import fit as fit
    from saas_ssl.model import Model as Model
    from saas_ssl.model import load as load
    from saas_ssl.networks import build as build
    from saas_ssl.networks import named_factory as named_factory
    from saas_ssl.pipeline import error_rate as error_rate
    from saas_ssl.pipeline import infer_posterior as infer_posterior
    from saas_ssl.pipeline import predict as predict
    from saas_ssl.pipeline import prepare as prepare
    from saas_ssl.pipeline import train_classifier as train_classifier
    from saas_ssl.pipeline import train_supervised as train_supervised
    from saas_ssl.presets import Settings as Settings
    from saas_ssl.presets import automatic as automatic
    from saas_ssl.presets import named_preset as named_preset
    from saas_ssl.randomness import generator_at as generator_at
    from saas_ssl.simplex import project as project

_NAMES = {
    "algorithm": "Epoch Outer phase_one phase_two",
    "augment": "augmented_view fit_preprocessing named_recipe",
    "data": "PartiallyLabelled hold_out keep_labels read read_digits",
    "embedding": "embed",
    "estimator": "SaaSClassifier",
    "exporting": "export",
    "methods.fitting": "fit",
    "model": "Model load",
    "networks": "build named_factory",
    "pipeline": "error_rate infer_posterior predict prepare train_classifier train_supervised",
    "presets": "Settings automatic named_preset",
    "randomness": "generator_at",
    "simplex": "project",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
