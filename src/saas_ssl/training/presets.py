"""Named settings as typed values: public names outside, the paper's symbols inside."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


def _setting(default: Any, help: str, symbol: str = "", **constraints: Any) -> Any:
    return Field(
        default,
        description=help,
        json_schema_extra={"symbol": symbol} if symbol else None,
        **constraints,
    )


class Settings(BaseModel):
    """Every choice of a run. The defaults are the paper's; presets change what differs."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    # What the network is and what it sees
    network: str = _setting("resnet18", "small_conv, resnet18, conv_large or mlp", "w")
    width: int | None = _setting(None, "channels of the first stage; none: the network's own", ge=1)
    augmentation: str = _setting("none", "recipe of phase one", "G")
    classifier_augmentation: str = _setting(
        "same", "recipe of phase two; same or strong: as in phase one, or its strong form", "G"
    )
    whiten: bool = _setting(False, "ZCA-whiten the images first")

    # Phase one
    inner_epochs: int = _setting(5, "length of the inner loop, the unit of time", "T", ge=1)
    outer_iterations: int = _setting(75, "outer iterations at most", "M", ge=0)
    weight_lr: float = _setting(0.01, "learning rate of the weights", "eta_w", gt=0)
    momentum: float = _setting(0.9, "momentum of the weights, both phases", "momentum", ge=0, lt=1)
    posterior_lr: float = _setting(1.0, "learning rate of the posterior", "eta_P", gt=0)
    min_probability: float | None = _setting(
        None, "least probability of a class in the posterior; none: 0.5 / classes", "alpha", ge=0
    )
    entropy_weight: float = _setting(1.0, "weight of the entropy of the outputs", "beta", ge=0)
    langevin_temperature: float = _setting(
        1e-5, "variance of the noise on the weights, in units of weight_lr", "langevin", ge=0
    )
    batch_size: int = _setting(100, "unlabelled rows in a step", "B", ge=1)
    labelled_batch_size: int | None = _setting(
        None, "labelled rows in a step; none: batch_size, or all if there are fewer", "B_l", ge=1
    )
    inner_schedule: Literal["constant", "triangular"] = _setting(
        "constant", "weight_lr over the inner loop", "schedule"
    )
    weights: Literal["resample", "reset"] = _setting(
        "resample", "fresh weights for each outer iteration, or the first draw again", "weights"
    )
    update: Literal["alternate", "joint"] = _setting(
        "alternate", "unlabelled then labelled half-step, or one step on the sum", "update"
    )
    gradient_at: Literal["before", "after"] = _setting(
        "before",
        "posterior gradient at the weights before the step (free) or after it",
        "gradient_at",
    )
    initial_posterior: Literal["gaussian", "random-class", "uniform", "supervised"] = _setting(
        "gaussian", "where the posterior starts: a draw, 1 / classes, or a first guess", "P_u"
    )
    stability_tolerance: float = _setting(
        0.0, "stop when fewer than this share of labels change; 0: never", "tolerance", ge=0
    )
    stability_patience: int = _setting(3, "... so many times in a row", "patience", ge=1)

    # Phase two, and the supervised baseline
    classifier_lr: float = _setting(0.1, "first or highest learning rate", "eta_w", gt=0)
    classifier_weight_decay: float = _setting(0.0, "weight decay", ge=0)
    classifier_schedule: Literal["halving", "constant", "triangular"] = _setting(
        "halving", "halve when the score stalls, or a known shape over classifier_epochs"
    )
    classifier_epochs: int = _setting(
        30, "unless halving: passes over the unlabelled rows; the baseline costs the same", ge=1
    )
    classifier_patience: int = _setting(50, "epochs without a rise before halving", ge=1)
    classifier_final_lr: float = _setting(0.001, "halving ends when it reaches this", gt=0)
    validation_share: float = _setting(
        0.1, "share of the labelled rows for validation, if each class has 20", ge=0, lt=1
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.classifier_schedule == "halving" and self.classifier_lr <= self.classifier_final_lr:
            raise ValueError("classifier_lr must be above classifier_final_lr to be halved")
        return self

    def changed(self, **changes: Any) -> Self:
        """The same settings but for these, checked."""
        return self.model_validate({**self.model_dump(), **changes})


_PAPER_SVHN = Settings(augmentation="svhn")
_PAPER_CIFAR10 = Settings(augmentation="cifar10", inner_epochs=40, outer_iterations=135)

PRESETS: dict[str, Settings] = {
    "digits": Settings(
        network="small_conv",
        augmentation="digits",
        classifier_augmentation="strong",
        inner_epochs=4,
        outer_iterations=4,
        batch_size=50,
        labelled_batch_size=25,
        weight_lr=0.1,
        posterior_lr=12.5,
        inner_schedule="triangular",
        langevin_temperature=0.0,
        classifier_schedule="triangular",
        classifier_epochs=15,
        classifier_lr=0.1,
        classifier_weight_decay=1e-4,
    ),
    "paper-cifar10": _PAPER_CIFAR10,
    "paper-svhn": _PAPER_SVHN,
    "paper-cifar10-convlarge": _PAPER_CIFAR10.changed(
        network="conv_large", whiten=True, augmentation="translate-flip"
    ),
    "paper-svhn-convlarge": _PAPER_SVHN.changed(
        network="conv_large", whiten=True, augmentation="translate"
    ),
    "authors-code": _PAPER_CIFAR10.changed(
        weights="reset",
        update="joint",
        initial_posterior="random-class",
        classifier_weight_decay=1e-4,
        classifier_final_lr=1e-4,
    ),
}


def named_preset(name: str) -> Settings:
    """A preset by its name."""
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
