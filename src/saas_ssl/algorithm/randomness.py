"""Every draw comes from a generator that is a function of the seed and the place of the draw."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import index

import torch
from torch import Generator, Tensor


def generator_at(seed: int, *place: str | int) -> Generator:
    """A CPU generator for one place, such as ``generator_at(0, "batches", m)``.

    Draws are small (permutations, affine parameters) or rare (weights), so they are made on the
    CPU and moved: the same seed then means the same draws on every device.
    """
    return Generator().manual_seed(seed_at(seed, *place))


def seed_at(seed: int, *place: str | int) -> int:
    """Another seed for one place, such as ``seed_at(0, "worker", 3)``."""
    # index: numpy's integers are as good as Python's, and print differently.
    exact = (index(seed), *(part if isinstance(part, str) else index(part) for part in place))
    digest = hashlib.sha256(repr(exact).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


@contextmanager
def global_draws_from(generator: Generator) -> Iterator[None]:
    """Inside, torch's global state is a function of `generator`; outside, it is as it was before.

    Layers such as dropout, and users' networks, draw from the global state and take no generator.
    """
    before = global_state()
    try:
        torch.manual_seed(int(torch.randint(1 << 62, (), generator=generator)))
        yield
    finally:
        set_global_state(before)


def global_state() -> dict[str, Tensor]:
    """The state of torch's global draws on every device, by its name."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        devices = range(torch.cuda.device_count())
        state |= {f"cuda:{n}": torch.cuda.get_rng_state(n) for n in devices}
    if torch.backends.mps.is_available():
        state["mps"] = torch.mps.get_rng_state()
    return state


def set_global_state(state: Mapping[str, Tensor]) -> None:
    """Put back what `global_state` had read; devices that are not there any more are left out."""
    for name, value in state.items():
        if name == "cpu":
            torch.set_rng_state(value)
        elif name == "mps" and torch.backends.mps.is_available():
            torch.mps.set_rng_state(value)
        elif name.startswith("cuda") and int(name[5:]) < torch.cuda.device_count():
            torch.cuda.set_rng_state(value, name)
