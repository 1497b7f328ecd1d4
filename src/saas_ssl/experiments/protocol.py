"""How many rows and labels, and which settings, at each scale of an experiment."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, PositiveInt

from saas_ssl.training.presets import PRESETS, Settings

Scale = Literal["smoke", "laptop", "paper"]
Kind = Literal["smoke", "grey", "colour", "cifar10", "svhn"]
"""The scale, and the kind of data where it matters: smoke; grey and colour on a laptop; the two
data sets of the paper."""


class Protocol(BaseModel):
    """What all runs of an experiment have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    labels: PositiveInt  # given ones, as many in each class
    unlabelled: PositiveInt | None  # none: all other rows
    settings: Settings

    def changed(self, *, rows: dict[str, int] | None = None, **settings: Any) -> Self:
        """The same but for these settings, and maybe numbers of rows."""
        own = {**self.model_dump(), **(rows or {})}
        return self.model_validate({**own, "settings": self.settings.changed(**settings)})


# Small networks, few rows; otherwise like the paper's SVHN protocol: a Gaussian start, small steps
# of P_u (effective step 0.25), many of them. Fixed lengths, since halving has none.
_GREY = Settings(
    network="small_conv",
    width=8,
    augmentation="digits",
    classifier_augmentation="strong",
    inner_epochs=5,
    outer_iterations=10,
    batch_size=50,
    weight_lr=0.05,
    posterior_lr=2.5,
    langevin_temperature=0.0,
    classifier_schedule="triangular",
    classifier_epochs=20,
    classifier_weight_decay=1e-4,
    validation_share=0.0,
)

_BASES: dict[Kind, Protocol] = {
    "smoke": Protocol(
        kind="smoke",
        labels=50,
        unlabelled=200,
        settings=_GREY.changed(
            width=4, inner_epochs=2, outer_iterations=3, posterior_lr=12.5, classifier_epochs=4
        ),
    ),
    "grey": Protocol(kind="grey", labels=100, unlabelled=1000, settings=_GREY),
    # The automatic settings, which are longer loops and fewer of them: photographs take longer to
    # learn than digits, and P_u becomes only as good as the networks of the inner loop.
    "colour": Protocol(
        kind="colour",
        labels=1000,
        unlabelled=4000,
        settings=_GREY.changed(
            augmentation="cifar10",
            classifier_augmentation="same",
            inner_epochs=38,
            outer_iterations=2,
            labelled_batch_size=25,
            weight_lr=0.1,
            posterior_lr=50 / 38,
            inner_schedule="triangular",
            initial_posterior="uniform",
            classifier_epochs=38,
        ),
    ),
    "cifar10": Protocol(
        kind="cifar10", labels=4000, unlabelled=None, settings=PRESETS["paper-cifar10"]
    ),
    "svhn": Protocol(kind="svhn", labels=1000, unlabelled=None, settings=PRESETS["paper-svhn"]),
}


def base(kind: Kind) -> Protocol:
    """Both phases, as the tables of the paper have them."""
    return _BASES[kind]


def many_outer(kind: Kind) -> Protocol:
    """Outer iterations enough to plot, as the figures of the paper have them: 30."""
    if kind == "colour":
        return base(kind).changed(inner_epochs=15, posterior_lr=50 / 15, outer_iterations=8)
    return base(kind).changed(outer_iterations=3 if kind == "smoke" else 30)


def kind_of(scale: Scale, data: str, channels: int) -> Kind:
    """Which protocol data of this name, with so many channels, take at this scale."""
    if scale == "smoke":
        return "smoke"
    if scale == "laptop":
        return "colour" if channels == 3 else "grey"
    if data.startswith("cifar10:"):
        return "cifar10"
    if data.startswith("svhn:"):
        return "svhn"
    raise ValueError(
        "the protocol of the paper is for the original data: cifar10:DIR or svhn:DIR, "
        f"not {data}; --scale laptop takes any images"
    )


def part_of_test(data: str) -> str | None:
    """The name of the test data that belong to these, where they have a part for it."""
    name = data.partition(":")[0]
    if name not in ("digits", "idx", "cifar10", "svhn"):
        return None
    return f"{data.removesuffix(':train')}:test"
