"""Where the networks compute, and in which precision."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from saas_ssl.algorithm.network import Wrapper

Precision = Literal["fp32", "bf16", "fp16"]
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Place:
    """A device, the precision of its layers, and whether networks are compiled for it."""

    device: torch.device = _CPU
    precision: Precision = "fp32"
    compiled: bool = False

    @property
    def loss_scaling(self) -> bool:
        """Whether small gradients would vanish in this precision."""
        return self.precision == "fp16"

    @property
    def posterior_device(self) -> torch.device:
        """Where P_u is: on the GPU, or on the CPU for devices without double precision."""
        return self.device if self.device.type in ("cuda", "meta") else _CPU

    def in_precision(self, network: nn.Module) -> nn.Module:
        """The network, its layers computing in this precision."""
        if self.precision == "fp32":
            return network
        return Autocast(network, self.device.type, _DTYPES[self.precision])

    def compile(self, network: nn.Module) -> nn.Module:
        """The network, compiled if that is wanted."""
        return torch.compile(network) if self.compiled else network  # type: ignore[return-value]

    def resident(self, x: Tensor) -> Tensor:
        """All rows on the device if they fit into half of its free memory, else as they are."""
        size = x.numel() * x.element_size()
        return x.to(self.device) if size <= self._free_memory() // 2 else x

    def _free_memory(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.mem_get_info(self.device)[0]
        if self.device.type == "mps":
            return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
        return 0


CPU = Place()


def find_place(device: str, precision: Precision, compiled: bool, local_rank: int = 0) -> Place:
    """The place that is asked for; auto is a GPU if there is one, each process on its own."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cpu" and torch.backends.mps.is_available():
            device = "mps"
    try:
        found = torch.device(device)
    except RuntimeError:
        found = torch.device("meta")
    if found.type not in ("cpu", "cuda", "mps"):
        raise ValueError(f"unknown device {device!r}: choose auto, cpu, cuda, cuda:1 or mps")
    if found.type == "cuda":
        found = _gpu(found, local_rank)
    if found.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError("there is no mps device here: choose another --device")
    if found.type == "mps" and precision == "bf16" and not _can_bf16_on_mps():
        raise ValueError("this mps device has no bf16: choose --precision fp16 or fp32")
    return Place(found, precision, compiled)


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch computes in one thread: on a busy machine two can be far slower than one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _gpu(wanted: torch.device, local_rank: int) -> torch.device:
    count = torch.cuda.device_count()
    if count == 0:
        raise ValueError("there is no cuda device here: choose another --device")
    n = local_rank % count if wanted.index is None else wanted.index
    if n >= count:
        raise ValueError(f"there is no device cuda:{n}: the last one is cuda:{count - 1}")
    torch.cuda.set_device(n)
    return torch.device("cuda", n)


def _can_bf16_on_mps() -> bool:
    return torch.backends.mps.is_macos_or_newer(14, 0)


class Autocast(Wrapper):
    """A network whose layers compute in bfloat16 or float16 where that is safe."""

    def __init__(self, network: nn.Module, device: str, dtype: torch.dtype) -> None:
        super().__init__(network)
        self._device, self._dtype = device, dtype

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        with torch.autocast(self._device, self._dtype):
            logits: Tensor = self.network(x)
        return logits
