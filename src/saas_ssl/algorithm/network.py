"""What the algorithm knows of networks: how one is drawn, what it sees, and its weights."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

NewNetwork = Callable[[Generator], nn.Module]
"""w ~ N(0, I): a network with fresh weights, or the same one with its weights drawn anew."""

View = Callable[[Tensor, Generator], Tensor]
"""Rows of the data as stored (uint8 images, or floats) -> what the network sees."""


class Wrapper(nn.Module):
    """What computes in another way with the weights of a network, without any of its own."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network


def unwrapped(network: nn.Module) -> nn.Module:
    """The network itself, without what precision, compiling and data parallelism put around it."""
    if isinstance(network, nn.parallel.DistributedDataParallel):
        return unwrapped(network.module)
    if isinstance(network, Wrapper):
        return unwrapped(network.network)
    compiled = getattr(network, "_orig_mod", None)
    return unwrapped(compiled) if isinstance(compiled, nn.Module) else network


def copied_state(network: nn.Module) -> dict[str, Tensor]:
    """Copies of the weights and buffers of a network, by their names in the network itself."""
    state = unwrapped(network).state_dict()
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def redraw_(network: nn.Module, fresh: nn.Module) -> nn.Module:
    """Copy the weights and buffers of `fresh` into `network`, in place.

    `network` may be compiled or wrapped (torch.compile, DistributedDataParallel): those rename the
    tensors but keep their order.
    """
    with torch.no_grad():
        for mine, theirs in (
            *zip(network.parameters(), fresh.parameters(), strict=True),
            *zip(network.buffers(), fresh.buffers(), strict=True),
        ):
            mine.copy_(theirs)
    return network
