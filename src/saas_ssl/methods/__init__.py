"""The systems of the paper and today's yardsticks, one file each: METHODS has them by name.

Each is a function (data, network factory, settings, generator) -> trained network and history, and
knows no other; what they share is in `settings`, `feed`, `terms`, `spending` and `training`, the
settings of each in `presets`. `fit`, in `fitting`, is one call on arrays.
"""

from typing import NamedTuple

from saas_ssl.methods.fixmatch import FixMatch, fixmatch
from saas_ssl.methods.freematch import FreeMatch, freematch
from saas_ssl.methods.gan_feature_matching import GanFeatureMatching, gan_feature_matching
from saas_ssl.methods.mean_teacher import MeanTeacher, mean_teacher
from saas_ssl.methods.pi_model import PiModel, pi_model
from saas_ssl.methods.pseudo_label import PseudoLabel, pseudo_label
from saas_ssl.methods.saas import Saas, saas
from saas_ssl.methods.saas_vat import SaasVat, saas_vat
from saas_ssl.methods.settings import Budget, Training
from saas_ssl.methods.stochastic_transformations import (
    StochasticTransformations,
    stochastic_transformations,
)
from saas_ssl.methods.supervised import supervised
from saas_ssl.methods.temporal_ensembling import TemporalEnsembling, temporal_ensembling
from saas_ssl.methods.training import Method
from saas_ssl.methods.vat import Vat, vat


class Known(NamedTuple):
    """A method and the type of its settings."""

    train: Method
    settings: type[Budget]


METHODS = {
    "supervised": Known(supervised, Training),
    "saas": Known(saas, Saas),
    "saas_vat": Known(saas_vat, SaasVat),
    "vat": Known(vat, Vat),
    "stochastic_transformations": Known(stochastic_transformations, StochasticTransformations),
    "temporal_ensembling": Known(temporal_ensembling, TemporalEnsembling),
    "pi_model": Known(pi_model, PiModel),
    "mean_teacher": Known(mean_teacher, MeanTeacher),
    "gan_feature_matching": Known(gan_feature_matching, GanFeatureMatching),
    "pseudo_label": Known(pseudo_label, PseudoLabel),
    "fixmatch": Known(fixmatch, FixMatch),
    "freematch": Known(freematch, FreeMatch),
}
