"""Index-carrying batches: pass after pass over the unlabelled set while the labelled set cycles."""

import math
from collections.abc import Iterator

import torch
from torch import Generator, Tensor


def steps_per_epoch(N: int, B: int) -> int:
    """⌈N/B⌉."""
    return math.ceil(N / B)


def whole_passes(N: int, steps: int, generator: Generator) -> Iterator[Tensor]:
    """0..N-1 shuffled, again and again, each pass in so many batches of sizes at most one apart.

    Equal shares instead of full batches and a remainder: no row is dropped, and none weighs more in
    the gradient of w because it came in a small last batch.
    """
    while True:
        yield from torch.randperm(N, generator=generator).tensor_split(steps)


def cycle(N: int, B: int, generator: Generator) -> Iterator[Tensor]:
    """Batches of exactly B rows, cut from one shuffled pass over 0..N-1 after another."""
    waiting = torch.empty(0, dtype=torch.int64)
    while True:
        while len(waiting) < B:
            waiting = torch.cat([waiting, torch.randperm(N, generator=generator)])
        yield waiting[:B]
        waiting = waiting[B:]


def two_streams(
    N_u: int, N_l: int, steps: int, B_l: int, generator: Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """(Unlabelled rows i, labelled rows j) for step after step, so many to an epoch."""
    return zip(whole_passes(N_u, steps, generator), cycle(N_l, B_l, generator), strict=False)


def image_passes(N_u: int, steps: int, B_l: int, epochs: int) -> int:
    """Images that go forward and backward through the network in so many epochs of two streams."""
    return epochs * (N_u + steps * B_l)
