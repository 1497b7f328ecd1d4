"""Long runs stay flat in memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from long_walk import EARLY, LATE, resident
from processes import ONE, Where, ended, is_at, started, wait_until

LONG_WALK = Path(__file__).parents[1] / "long_walk.py"
TOLERANCE = 0.05  # a share of the memory

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


@pytest.mark.parametrize("saving", [False, True], ids=["alone", "with checkpoints"])
def test_fifty_outer_iterations_need_the_memory_of_five(tmp_path: Path, saving: bool) -> None:
    done = subprocess.run(
        [sys.executable, LONG_WALK, str(tmp_path) if saving else ""],
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
