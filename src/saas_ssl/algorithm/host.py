"""What surrounds the algorithm: other processes, a watcher, an interrupted loop to go on with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Generator, Tensor

from saas_ssl.algorithm.descent import Descent
from saas_ssl.algorithm.randomness import generator_at

Combine = Callable[[Tensor], Tensor]


def _as_it_is(x: Tensor) -> Tensor:
    return x


def _nothing(_sgd: Descent) -> None:
    pass


@dataclass(frozen=True)
class Host:
    """How one process takes part; by default it is alone, and no one watches."""

    average: Combine = _as_it_is  # dP_u of this trajectory -> mean over those of all workers
    over_rows: Combine = _as_it_is  # means over the rows of this process -> over those of all
    after_step: Callable[[Descent], None] = _nothing  # may look, save, or stop by raising
    steps: int | None = None  # of an epoch, where other processes must take as many
    place: Sequence[int] = ()  # of draws that differ between processes which take the same steps
    loss_scaling: bool = False
    inside: Mapping[str, Tensor] | None = None  # Descent.state() of the loop to go on with

    def draws(self, seed: int, *place: str | int) -> Generator:
        """A generator for one place in this process, which differs from that in others."""
        return generator_at(seed, *place, *self.place)


ALONE = Host()
