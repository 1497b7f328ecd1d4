"""Commands with several processes: started, watched, and never left behind."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from processes import Ended, ended, wait_until

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
PROC = Path("/proc")

ROWS, LABELLED = 180, 30
QUICK = ["stripes.npz", "--augmentation", "translate", "--batch-size", "25", "--set", "width=4"]
QUICK += ["--inner-epochs", "4", "--outer-iterations", "2", "--set", "classifier_epochs=3"]
QUICK += ["--posterior-lr", "1"]  # or all probabilities would be the least or the greatest at once
OFTEN = ["--checkpoint-every", "0.05s"]
TWO_WORKERS, SHARED_ROWS = ["--workers", "2"], ["--parallel", "data"]

needs_proc = pytest.mark.skipif(not (PROC / "self" / "environ").exists(), reason="without /proc")


def write_stripes(path: Path) -> None:
    """Noisy 8x8 images of three classes, each with a bright stripe elsewhere."""
    rng, y = np.random.default_rng(0), np.arange(ROWS) % 3
    x = rng.integers(0, 120, (ROWS, 8, 8), dtype=np.uint8)
    for k in range(3):
        x[y == k, 2 * k : 2 * k + 3] += 100
    np.savez(path, x=x, y=np.where(np.arange(ROWS) < LABELLED, y, -1))


def torchrun(size: int, *options: str) -> list[str]:
    return [TORCHRUN, *(options or ["--standalone"]), f"--nproc-per-node={size}", "--no-python"]


@dataclass(frozen=True)
class Command:
    """A process, and all that it has started: they have a word of their environment in common."""

    process: subprocess.Popen[str]
    word: str

    def alive(self) -> list[int]:
        """The numbers of all its processes that have not ended."""
        found = []
        for folder in PROC.glob("[0-9]*"):
            with suppress(OSError):  # it has just ended, or is not ours; one that has has nothing
                if self.word.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found

    def workers(self) -> list[int]:
        """Those that are workers."""
        return [pid for pid in self.alive() if "saas_ssl.labelling.worker_main" in words(pid)]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        wait_until(condition, self.process)


def words(pid: int) -> list[str]:
    """How a process was started."""
    with suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes().decode().split("\0")
    return []


@contextmanager
def started(command: Sequence[str], cwd: Path, **environment: str) -> Iterator[Command]:
    """A command under way; it and all that it started are gone after the block."""
    word = f"saas-test-{uuid.uuid4()}"
    process = subprocess.Popen(
        command,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "SAAS_TEST": word, **environment},
        start_new_session=True,
    )
    begun = Command(process, word)
    with process:
        try:
            yield begun
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            for pid in begun.alive():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def run_to_end(command: Sequence[str], cwd: Path, **environment: str) -> Ended:
    with started(command, cwd, **environment) as begun:
        return ended(begun.process)


def facts(run: Path, rank: int) -> dict[str, Any]:
    """The newest checkpoint of a rank, while it may be writing another one."""
    checkpoints = run / "checkpoint" / (f"rank{rank}" if rank else "")
    for file in sorted(checkpoints.glob("*.json"), reverse=True):
        with suppress(FileNotFoundError):
            found: dict[str, Any] = json.loads(file.read_text())
            return found
    return {}


def are_inside(run: Path) -> bool:
    """Whether both ranks have saved an inner loop."""
    both = [facts(run, rank) for rank in range(2)]
    return all(found.get("stage") == "one" and found["t"] > 0 for found in both)
