"""Phase one for many outer iterations: what a test starts as a process to see how large it gets."""

import gc
import re
import sys
from pathlib import Path

import torch
from torch import Tensor

from saas_ssl.algorithm.descent import Descent
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.data.splits import keep_labels
from saas_ssl.runs.checkpoints import Checkpoints
from saas_ssl.sources.digits import read_digits
from saas_ssl.training.pipeline import infer_posterior
from saas_ssl.training.presets import Settings
from saas_ssl.training.problem import prepare

EARLY, LATE = 5, 50  # outer iterations


def resident(process: int | str = "self") -> int:
    """The memory of a process, in kB."""
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert match is not None
    return int(match[1])


def many_digits() -> PartiallyLabelled:
    """The digits ten times as features: 17,920 unlabelled rows, so that each P_u has a weight."""
    data = read_digits()
    x, y = data.x.flatten(1).float().repeat(10, 1) / 255, data.y.repeat(10)
    rows = PartiallyLabelled(x, y, data.classes, [str(row) for row in range(len(x))])
    return keep_labels(rows, 50, generator_at(0, "kept labels"))


def walk(folder: str) -> None:
    """Print the memory after some outer iterations; save each, and within, if there is a folder."""
    torch.set_num_threads(1)
    settings = Settings(
        network="mlp", width=16, inner_epochs=1, outer_iterations=LATE, batch_size=3000
    )
    store, tensors, changes = Checkpoints(Path(folder)), dict[str, Tensor](), list[float]()

    def save(sgd: Descent) -> None:
        if folder:
            store.save({"changes": changes}, {**tensors, **sgd.state()})

    for outer in infer_posterior(prepare(many_digits(), settings, seed=0), after_step=save):
        changes.append(outer.changed)
        tensors["P_u"] = outer.P_u
        if folder:
            store.save({"changes": changes}, tensors)
        if len(changes) in (EARLY, LATE):
            gc.collect()
            print(resident())


if __name__ == "__main__":
    walk(sys.argv[1])
