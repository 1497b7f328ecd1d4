"""Settings that methods share: a budget, and how a network is trained."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Budget(BaseModel):
    """How long a method may train: image passes, or seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    passes: float | None = Field(default=None, gt=0, description="budget in image passes")
    seconds: float | None = Field(default=None, gt=0, description="... or in seconds")

    @property
    def unit(self) -> Literal["passes", "seconds"]:
        """What is counted."""
        return "seconds" if self.passes is None else "passes"

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        if (self.passes is None) == (self.seconds is None):
            raise ValueError("a budget is a number of passes or of seconds: give one of them")
        return self


class Training(Budget):
    """Settings that every method has."""

    augmentation: str = Field(default="none", description="recipe of the weak view")
    view: Literal["weak", "strong"] = Field(default="weak", description="how images are seen")
    noise: float = Field(default=0.0, ge=0, description="of the input, in standard deviations")
    whiten: bool = Field(default=False, description="ZCA-whiten the images first")
    labelled_batch: int = Field(default=25, ge=1, description="labelled rows in a step")
    unlabelled_batch: int = Field(default=50, ge=1, description="unlabelled rows in a step")
    optimiser: Literal["sgd", "adam"] = Field(
        default="sgd", description="sgd with momentum, or adam"
    )
    lr: float = Field(default=0.1, gt=0, description="highest learning rate")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="Nesterov's, or Adam's first")
    final_momentum: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="where the momentum goes in the last sixth, if it changes",
    )
    weight_decay: float = Field(default=1e-4, ge=0, description="of all weights")
    schedule: Literal["constant", "triangular", "cosine", "linear-end", "ramps"] = Field(
        default="triangular", description="of the learning rate over the budget"
    )
    average: float = Field(
        default=0.0, ge=0, lt=1, description="decay of an average of the weights that is the result"
    )
