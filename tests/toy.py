"""Small data and networks that several tests share."""

import math
from collections import deque
from collections.abc import Iterable
from typing import TypeVar

import torch
from torch import Generator, Tensor, nn

from saas_ssl.algorithm.partially_labelled import UNLABELLED, PartiallyLabelled
from saas_ssl.algorithm.randomness import generator_at

Item = TypeVar("Item")


def identity_view(x: Tensor, _generator: Generator) -> Tensor:
    return x


def blobs(
    n: int = 120, K: int = 3, labelled_per_class: int = 4, spread: float = 0.4, seed: int = 0
) -> tuple[PartiallyLabelled, Tensor]:
    """K Gaussian clusters on a circle (float64, two features), and the true labels of all rows."""
    generator = generator_at(seed, "blobs")
    y = torch.arange(n) % K
    angle = 2 * math.pi * y / K
    x = torch.stack([angle.cos(), angle.sin()], dim=1).double()
    x += spread * torch.randn(n, 2, generator=generator, dtype=torch.float64)
    given = torch.full_like(y, UNLABELLED)
    given[: labelled_per_class * K] = y[: labelled_per_class * K]
    names = [f"class {k}" for k in range(K)]
    return PartiallyLabelled(x, given, names, [str(row) for row in range(n)]), y


def last(items: Iterable[Item]) -> Item:
    """The last of the items, all of which are asked for."""
    return deque(items, maxlen=1).pop()


class HiddenLayer(nn.Module):
    """W2 tanh(W1 x + b1) + b2 in float64: the network of tests/reference.py."""

    def __init__(self, D: int, H: int, K: int, generator: Generator) -> None:
        super().__init__()

        def draw(*shape: int) -> nn.Parameter:
            return nn.Parameter(0.5 * torch.randn(shape, generator=generator, dtype=torch.float64))

        self.W1, self.b1, self.W2, self.b2 = draw(H, D), draw(H), draw(K, H), draw(K)

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.W1.T + self.b1).tanh() @ self.W2.T + self.b2


def small_network(generator: Generator) -> nn.Module:
    """A fresh network for the blobs."""
    return HiddenLayer(2, 8, 3, generator)
