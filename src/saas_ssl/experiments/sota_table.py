"""Fig. 4, a table: SaaS and the systems that the paper compares it with, and SaaS with VAT.

    saas reproduce sota-table --scale laptop --data idx:mnist --seeds 3 --workers 2

The paper, test error in %, the others' as published: CIFAR-10 with 4,000 labels VAT+EntMin 10.55,
SaaS 10.94 ± 0.07, Stochastic Transformation 11.29, Temporal Ensemble 12.16, Mean Teacher 12.31,
GAN+FM 15.59; SVHN with 1,000 labels SaaS 3.82 ± 0.09, VAT 3.86, Mean Teacher 3.95, Temporal
Ensemble 4.42, GAN+FM 5.88. Here all of them are trained, on the same labels with the same network
and as many image passes as both phases of SaaS take. `saas compare` has more methods.

Ours (laptop, MNIST, 3 labelled sets): VAT 2.50 ± 0.35, Stochastic Transformations 2.60 ± 0.33,
Temporal Ensembling 3.11 ± 0.76, SaaS + VAT 3.37 ± 0.26, SaaS 3.48 ± 0.29, Mean Teacher 3.67 ± 0.80,
GAN + FM 6.53 ± 0.95, supervised 6.56 ± 0.97. SaaS beats supervised training; what VAT adds to it is
undecided.

Runtime on two cores: smoke 17 s, laptop 11 min. paper: 353 h (CIFAR-10) or 70 h (SVHN) on one
modern GPU, by an estimate.
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from saas_ssl.experiments.experiment import Experiment, Records
from saas_ssl.experiments.plots import columns
from saas_ssl.experiments.protocol import Protocol, base
from saas_ssl.experiments.trial import (
    Case,
    Cost,
    Record,
    cost_of_phase_one,
    cost_of_phase_two,
    run_saas,
)
from saas_ssl.experiments.verdicts import Verdict, all_positive, by_seed, lower_by
from saas_ssl.methods.fitting import as_told, settings_of
from saas_ssl.methods.fitting import run as train

METHODS = {
    "vat": "VAT + EntMin",
    "stochastic_transformations": "Stochastic Transf.",
    "temporal_ensembling": "Temporal Ens.",
    "gan_feature_matching": "GAN + FM",
    "mean_teacher": "Mean Teacher",
    "saas": "SaaS",
    "saas_vat": "SaaS + VAT",
    "supervised": "supervised",
}
# Published settings are those for CIFAR-10; digits have no mirror images, and these differ besides.
_SEEN_ON_SVHN: dict[str, Any] = {"augmentation": "svhn"}
_ON_SVHN: dict[str, dict[str, Any]] = {
    "vat": _SEEN_ON_SVHN | {"epsilon": 3.5},
    "saas_vat": _SEEN_ON_SVHN | {"epsilon": 3.5, "inner_epochs": 5, "outer_iterations": 75},
    "mean_teacher": _SEEN_ON_SVHN | {"consistency": 1.0},
    "gan_feature_matching": {},
}
PAPER = {  # CIFAR-10, SVHN
    "vat": (0.1055, 0.0386),
    "stochastic_transformations": (0.1129, None),
    "temporal_ensembling": (0.1216, 0.0442),
    "gan_feature_matching": (0.1559, 0.0588),
    "mean_teacher": (0.1231, 0.0395),
    "saas": (0.1094, 0.0382),
}


def arms(_protocol: Protocol) -> Sequence[str]:
    """The methods."""
    return tuple(METHODS)


def cost(case: Case, _arm: str) -> Cost:
    """For all methods what both phases of SaaS take."""
    problem = case.problem()
    return cost_of_phase_one(problem) + cost_of_phase_two(problem)


def run(case: Case, arm: str) -> Record:
    """One method with the budget of all; its own published settings at the scale of the paper."""
    data, own = case.data(), case.protocol
    as_published = own.kind in ("cifar10", "svhn")
    if arm == "saas" and as_published:
        return run_saas(case, case.problem())
    given = _ON_SVHN.get(arm, _SEEN_ON_SVHN) if own.kind == "svhn" else {}
    budget = {"passes": cost(case, arm).passes}
    settings = settings_of(arm, "original" if as_published else "small", data, budget, given)
    network, width = own.settings.network, own.settings.width
    trained = train(arm, data, network, width, settings, case.seed, str(case.place.device))
    error = case.error(trained.network, trained.preprocessing)
    passes = round(trained.history[-1]["passes"])
    return {"test_error": error, "passes": passes, "settings": as_told(settings)}


def verdicts(records: Records) -> list[Verdict]:
    """SaaS against its baseline with as many image passes, and what VAT adds to it."""
    errors = {arm: by_seed(records[arm], "test_error") for arm in records}
    return [
        all_positive(
            "7",
            lower_by(
                "lower test error of SaaS than of supervised training with as many image passes",
                errors["supervised"],
                errors["saas"],
            ),
        ),
        all_positive(
            "9",
            lower_by("lower test error with VAT than without", errors["saas"], errors["saas_vat"]),
        ),
    ]


def draw(figure: Figure, records: Records) -> None:
    """Our errors on top, those of the paper below."""
    above, below = figure.subplots(2, 1)
    ours = {
        name: {"ours": list(by_seed(records[arm], "test_error").values())}
        for arm, name in METHODS.items()
    }
    columns(above, ours)
    published = {
        METHODS[arm]: {
            name: [error]
            for name, error in zip(("paper, CIFAR-10", "paper, SVHN"), errors, strict=True)
            if error is not None
        }
        for arm, errors in PAPER.items()
    }
    columns(below, published)
    for axes in (above, below):
        axes.tick_params(axis="x", rotation=20)


EXPERIMENT = Experiment(__doc__, base, arms, run, cost, verdicts, draw, size=(8, 7))
