"""Several processes on one machine or many: who takes part, and what they tell each other.

Trajectories: each rank runs an inner loop of its own and dP_u is averaged. Data: all ranks run the
same trajectory on their shares of the unlabelled rows, and the gradients of w are averaged.
"""

import inspect
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import FileStore

from saas_ssl.algorithm.randomness import seed_at

Parallel = Literal["trajectories", "data"]

_LEAST_PATIENCE = 600.0  # seconds to wait for others, and
_PATIENCE = 5.0  # so many times what this process took itself
_STUCK = timedelta(minutes=30)  # for the steps of data parallelism, which wait for each other
_FOREVER = timedelta(days=365)


class LostWorkerError(Exception):
    """Another process of the run is gone, or does not answer."""


@dataclass(eq=False)
class Ranks:
    """One process among all; alone it has rank 0 of 1, and nothing is sent anywhere."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    parallel: Parallel = "trajectories"
    store: Path | None = None  # where processes of one machine meet; none: as torchrun says
    sent: int = 0  # bytes that this process gave to collective operations
    alive: Callable[[], None] = lambda: None  # raises LostWorkerError if a worker of ours ended
    watch: Callable[[], None] = lambda: None  # called while waiting; raises to wait no longer
    last: float = field(default_factory=time.monotonic)  # when others answered

    @property
    def from_torchrun(self) -> bool:
        """Whether torchrun started the processes, maybe on several machines."""
        return self.size > 1 and self.store is None

    @property
    def shares_rows(self) -> bool:
        """Whether the unlabelled rows are divided among several processes."""
        return self.size > 1 and self.parallel == "data"

    @property
    def shares_trajectories(self) -> bool:
        """Whether several processes average the dP_u of their trajectories."""
        return self.size > 1 and self.parallel == "trajectories"

    @property
    def sharing(self) -> int:
        """How many processes take the same steps, each with its share of the rows."""
        return self.size if self.shares_rows else 1

    @property
    def own_place(self) -> tuple[int, ...]:
        """Of draws that differ between processes which take the same steps."""
        return (self.rank,) if self.shares_rows and self.rank else ()

    def trajectory_seed(self, seed: int) -> int:
        """Another one for each trajectory; that of rank 0 is that of a process alone."""
        return seed_at(seed, "rank", self.rank) if self.shares_trajectories and self.rank else seed

    def own_rows(self, rows: Tensor) -> Tensor:
        """Every size-th row, so that each rank has a like share of what is sorted by class."""
        return rows[self.rank :: self.size] if self.shares_rows else rows

    def average(self, dP_u: Tensor) -> Tensor:
        """Mean over the trajectories of all ranks."""
        if not self.shares_trajectories:
            return dP_u
        return self._reduced(dP_u) / self.size

    def over_rows(self, means: Tensor, rows: int) -> Tensor:
        """Means over the rows of this rank -> means over those of all ranks."""
        if not self.shares_rows:
            return means
        weighted = torch.cat([means.reshape(-1), means.new_ones(1)]) * rows
        total = self._reduced(weighted)
        return (total[:-1] / total[-1]).view(means.shape)

    def total(self, x: Tensor) -> Tensor:
        """Sum over the rows of all ranks."""
        return self._reduced(x) if self.shares_rows else x

    def meet(self) -> None:
        """Wait until all ranks are here."""
        self._reduced(torch.zeros(1))

    def any(self, flag: bool) -> bool:
        """Whether it is so in any rank that takes the same steps."""
        if not self.shares_rows:
            return flag
        return bool(self._reduced(torch.tensor(int(flag)), dist.ReduceOp.MAX))

    def least(self, number: int) -> int:
        """The least number of any rank that takes the same steps."""
        return int(self._reduced(torch.tensor(number), dist.ReduceOp.MIN))

    def from_first(self, x: Tensor) -> Tensor:
        """What rank 0 has, for all."""
        if self.size == 1:
            return x
        x = x.contiguous()
        self._count(x)
        self._wait(lambda: dist.broadcast(x, 0, async_op=True))
        return x

    def text_from_first(self, text: str) -> str:
        """What rank 0 says, for all."""
        if self.size == 1:
            return text
        data = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        length = self.from_first(torch.tensor(len(data)))
        told = self.from_first(
            data if self.rank == 0 else torch.empty(int(length), dtype=data.dtype)
        )
        return bytes(told.tolist()).decode()

    def all_rows(self, own: Tensor, n: int) -> Tensor:
        """The rows of all ranks in their order, in rank 0; other ranks keep theirs."""
        if not self.shares_rows:
            return own
        longest = -(-n // self.size)
        part = own.new_zeros((longest, *own.shape[1:]))
        part[: len(own)] = own
        parts = [torch.empty_like(part) for _ in range(self.size)] if self.rank == 0 else None
        self._count(part)
        self._wait(lambda: dist.gather(part, parts, async_op=True))
        if parts is None:
            return own
        return torch.stack(parts, dim=1).flatten(0, 1)[:n]

    def average_buffers_(self, network: nn.Module) -> None:
        """Running means and variances over the shares of all ranks, in place."""
        if self.shares_rows:
            for buffer in network.buffers():
                if buffer.is_floating_point():
                    buffer.copy_(self._reduced(buffer) / self.size)

    def with_common_statistics(self, network: nn.Module) -> nn.Module:
        """The network with batch statistics over the ranks that share rows, which GPUs can do."""
        if self.shares_rows and next(network.parameters()).is_cuda:
            network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
        return network

    def wrapped(self, network: nn.Module) -> nn.Module:
        """The network with gradients averaged over the ranks, where they take the same steps."""
        if not self.shares_rows:
            return network
        self.join()
        # Buffers are averaged where they are used: to broadcast them in every forward pass would
        # change what the backward pass of a joint update needs.
        parallel = nn.parallel.DistributedDataParallel
        new_name = "forward_sync_buffers" in inspect.signature(parallel).parameters
        keep: dict[str, Any] = {"forward_sync_buffers" if new_name else "broadcast_buffers": False}
        return parallel(network, process_group=dist.new_group(timeout=_STUCK), **keep)

    def join(self) -> None:
        """Meet the other processes, once; later calls return at once."""
        if self.size == 1 or dist.is_initialized():
            return
        # nccl wants a GPU for each process; gloo can do with a shared one.
        here = int(os.environ.get("LOCAL_WORLD_SIZE", self.size))
        gpus = dist.is_nccl_available() and torch.cuda.device_count() >= here
        backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
        # Reading data or a trajectory may take any time: _wait knows when to give up.
        if self.store is None:
            dist.init_process_group(backend, timeout=_FOREVER)
            return
        # Processes of one machine meet in a file and talk over the loopback interface only.
        os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
        store = FileStore(str(self.store), self.size)
        store.set(f"here {self.rank}", "")
        while not store.check([f"here {rank}" for rank in range(self.size)]):
            self.alive()  # one that ended will never come
            time.sleep(0.05)
        store.set_timeout(_STUCK)
        dist.init_process_group(
            backend, store=store, rank=self.rank, world_size=self.size, timeout=_FOREVER
        )

    def leave(self) -> None:
        """Part from the others when all is done."""
        if self.from_torchrun:
            self.meet()  # torchrun ends all machines soon after the processes of one have ended
        if dist.is_initialized():
            dist.destroy_process_group()

    def _reduced(self, x: Tensor, how: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Tensor:
        x = x.clone(memory_format=torch.contiguous_format)
        self._count(x)
        self._wait(lambda: dist.all_reduce(x, how, async_op=True))
        return x

    def _count(self, x: Tensor) -> None:
        self.sent += x.numel() * x.element_size()

    def _wait(self, begin: Callable[[], dist.Work | None]) -> None:
        """Wait for a collective operation, but not for processes that are gone or stuck."""
        start, pause = time.monotonic(), 1e-4
        patience = math.inf
        if self.rank == 0:
            patience = max(_LEAST_PATIENCE, _PATIENCE * (start - self.last))
        try:
            self.join()
            work = begin()
            while work is not None and not work.is_completed():
                self.watch()
                if time.monotonic() - start > patience:
                    raise LostWorkerError(
                        f"the other processes did not answer for {patience:.0f} s"
                    )
                time.sleep(pause)
                pause = min(0.05, 1.5 * pause)
            if work is not None:
                work.wait()
        except RuntimeError as error:  # what torch raises when a connection breaks
            time.sleep(0.5)  # if a worker of ours ended, it has by now
            self.alive()
            raise LostWorkerError(
                f"another process is gone: {str(error).splitlines()[0]}"
            ) from None
        self.last = time.monotonic()


ALONE = Ranks()


def ranks_of_torchrun(parallel: Parallel) -> Ranks | None:
    """What torchrun says of this process in the environment, if it does."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if not all(name in os.environ for name in names):
        return None
    rank, size, local_rank = (int(os.environ[name]) for name in names[:3])
    return Ranks(rank, size, local_rank, parallel) if size > 1 else None
