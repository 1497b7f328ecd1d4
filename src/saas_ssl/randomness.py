"""Every draw comes from a generator that is a function of the seed and the place of the draw."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from operator import index

import torch
from torch import Generator


def generator_at(seed: int, *place: str | int) -> Generator:
    """A CPU generator for one place, such as ``generator_at(0, "batches", m)``.

    Draws are small (permutations, affine parameters) or rare (weights), so they are made on the
    CPU and moved: the same seed then means the same draws on every device.
    """
    # index: numpy's integers are as good as Python's, and print differently.
    exact = (index(seed), *(part if isinstance(part, str) else index(part) for part in place))
    digest = hashlib.sha256(
        repr(exact).encode()
    ).digest()  # numpy's integers are as good as Python's
    return Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


@contextmanager
def global_draws_from(generator: Generator) -> Iterator[None]:
    """Inside, torch's global state is a function of `generator`; outside, it is as it was before.

    Layers such as dropout, and users' networks, draw from the global state and take no generator.
    """
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(int(torch.randint(1 << 62, (), generator=generator)))
        yield
