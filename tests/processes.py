"""Real `saas` processes for the tests: started, watched, interrupted, and never left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

LIMIT = 600.0  # seconds: only a process that hangs takes as long
SAAS = str(Path(sys.executable).with_name("saas"))
STAGES = ("supervised", "one", "two")
SUPERVISED, ONE, TWO = range(3)


class Ended(NamedTuple):
    """How a process ended."""

    code: int  # negative: the signal that killed it
    out: str
    errors: str


class Where(NamedTuple):
    """How far a run is, by its newest checkpoint; later is greater."""

    stage: int  # in STAGES
    n: int  # outer iterations or epochs that are done
    t: int  # steps of the next


@contextmanager
def started(
    *arguments: str, cwd: Path, prepare: Callable[[], None] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A `saas` process; it and all that it started are gone after the block."""
    process = subprocess.Popen(
        [SAAS, *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"},
        start_new_session=True,  # so that all of it has one number
        preexec_fn=prepare,
    )
    try:
        with process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    finally:
        process.wait(LIMIT)


def ended(process: subprocess.Popen[str]) -> Ended:
    """Wait until the process has ended by itself, or by the signal that it was sent."""
    out, errors = process.communicate(timeout=LIMIT)
    return Ended(process.returncode, out, errors)


def run_to_end(*arguments: str, cwd: Path, prepare: Callable[[], None] | None = None) -> Ended:
    """Start a `saas` process and wait until it has ended by itself."""
    with started(*arguments, cwd=cwd, prepare=prepare) as process:
        return ended(process)


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait while the process goes on; it must not end before the condition holds."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        if process.poll() is not None:
            out, errors = process.communicate()
            raise AssertionError(f"ended too soon with {process.returncode}:\n{out}\n{errors}")
        assert time.monotonic() < deadline, "nothing happens"
        time.sleep(0.005)


def newest_facts(run: Path) -> dict[str, Any] | None:
    """The JSON of the newest checkpoint that is there, as another process sees it."""
    while found := sorted((run / "checkpoint").glob("*.json")):
        with suppress(FileNotFoundError):  # the next one has just replaced it
            facts: dict[str, Any] = json.loads(found[-1].read_text(encoding="utf-8"))
            return facts
    return None


def where(run: Path) -> Where:
    """How far a run is; what has no checkpoint is at its very beginning."""
    facts = newest_facts(run)
    if facts is None:
        return Where(0, 0, 0)
    done = facts["changes"] if facts["stage"] == "one" else facts["scores"]
    return Where(STAGES.index(facts["stage"]), len(done), facts["t"])


def is_at(run: Path, place: Where, after: Where | None = None) -> Callable[[], bool]:
    """Whether the run has come to a place, and farther than it was; it must never go back."""

    def check() -> bool:
        now = where(run)
        assert after is None or now >= after, "what was done is done again"
        return now >= place and (after is None or now > after)

    return check


def files(run: Path) -> dict[str, bytes]:
    """All files below a folder by their paths, and what they hold."""
    return {
        path.relative_to(run).as_posix(): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file()
    }


def products(run: Path) -> dict[str, Any]:
    """What a finished run is compared by: hashes of its files, and numbers but for the times."""
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    written = files(run)
    lines = written.pop("metrics.jsonl").decode().splitlines()
    del written["run.json"]
    if record["command"] is not None:  # which names the place, and how many processes there are
        report, command = written["report.html"].decode(), escape(record["command"])
        assert command in report
        written["report.html"] = report.replace(command, "").encode()
    return {
        "files": {name: sha256(data).hexdigest() for name, data in written.items()},
        "metrics": [_without_times(json.loads(line)) for line in lines],
        "results": _without_times(record["results"]),
    }


def _without_times(found: Any) -> Any:
    if not isinstance(found, dict):
        return found
    kept = {name: value for name, value in found.items() if name not in ("seconds", "bytes_sent")}
    return {name: _without_times(value) for name, value in kept.items()}
