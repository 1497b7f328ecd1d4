"""What an experiment is: one table or figure of the paper."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from saas_ssl.experiments.protocol import Kind, Protocol
from saas_ssl.experiments.trial import Case, Cost, Record
from saas_ssl.experiments.verdicts import Verdict

Records = Mapping[str, Mapping[int, Record]]
"""The runs of an experiment by arm and seed."""


@dataclass(frozen=True)
class Experiment:
    """Its runs differ in their arm, which is what it varies, and in the seed."""

    about: str | None  # the docstring of its file
    protocol: Callable[[Kind], Protocol]
    arms: Callable[[Protocol], Sequence[str]]
    run: Callable[[Case, str], Record]
    cost: Callable[[Case, str], Cost]
    verdicts: Callable[[Records], list[Verdict]]
    draw: Callable[[Figure, Records], None]
    size: tuple[float, float] = (5.5, 4.0)  # of the figure, in inches

    @property
    def title(self) -> str:
        """The first line of what it is about."""
        return (self.about or "").strip().splitlines()[0].rstrip(".")
