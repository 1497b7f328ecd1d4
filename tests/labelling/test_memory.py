"""Long runs stay flat in memory."""

import gc
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from processes import ONE, Where, ended, is_at, started, wait_until
from saas_ssl.algorithm.descent import Descent
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.data.splits import keep_labels
from saas_ssl.runs.checkpoints import Checkpoints
from saas_ssl.sources.digits import read_digits
from saas_ssl.training.pipeline import infer_posterior
from saas_ssl.training.presets import Settings
from saas_ssl.training.problem import prepare

EARLY, LATE, TOLERANCE = 5, 50, 0.05  # outer iterations, and a share of the memory

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


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


@pytest.mark.parametrize("saving", [False, True], ids=["alone", "with checkpoints"])
def test_fifty_outer_iterations_need_the_memory_of_five(tmp_path: Path, saving: bool) -> None:
    code = "import sys; from test_memory import walk; walk(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path) if saving else ""],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.stderr == ""
    early, late = map(int, done.stdout.split())
    assert abs(late - early) <= TOLERANCE * early
    assert len(list(tmp_path.glob("*.json"))) == saving


def test_a_whole_run_needs_no_more_memory_the_longer_it_goes_on(tmp_path: Path) -> None:
    command = ["label", "digits:train", "--keep-labels", "50", "--unlabelled", "300"]
    command += ["--image-size", "8", "--inner-epochs", "1", "--outer-iterations", "100000"]
    command += ["--set", "width=4", "--set", "classifier_epochs=2", "--checkpoint-every", "0.01s"]
    run, found = tmp_path / "run", list[int]()
    with started(*command, "--out", "run", cwd=tmp_path) as process:
        for m in (EARLY, LATE):
            wait_until(is_at(run, Where(ONE, m, 0)), process)
            found.append(resident(process.pid))
        process.kill()
        ended(process)
    assert abs(found[1] - found[0]) <= TOLERANCE * found[0]
