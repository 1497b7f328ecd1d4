"""The command with several processes: real ones, on one machine and on two that are joined."""

import csv
import json
import os
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from processes import LIMIT, SAAS, Ended, ended, products
from worker_runs import (
    LABELLED,
    OFTEN,
    QUICK,
    ROWS,
    SHARED_ROWS,
    TWO_WORKERS,
    are_inside,
    facts,
    needs_proc,
    run_to_end,
    started,
    torchrun,
    write_stripes,
)

FILES = ["labels.csv", "metrics.jsonl", "model.json", "model.safetensors"]
FILES += ["posterior.safetensors", "report.html", "run.json"]

UNDISTURBED = {
    "data-torchrun-4": [*torchrun(4), SAAS, "label", *QUICK, *SHARED_ROWS],
    "torchrun": [*torchrun(2), SAAS, "label", *QUICK],
    "data-torchrun": [*torchrun(2), SAAS, "label", *QUICK, *SHARED_ROWS],
    "workers": [SAAS, "label", *QUICK, *TWO_WORKERS],
    "again": [SAAS, "label", *QUICK, *TWO_WORKERS],
    "data": [SAAS, "label", *QUICK, *TWO_WORKERS, *SHARED_ROWS],
    "alone": [SAAS, "label", *QUICK],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the data are, and the runs of `UNDISTURBED` by their names."""
    folder = tmp_path_factory.mktemp("workers")
    write_stripes(folder / "stripes.npz")

    def run(name: str) -> Ended:
        return run_to_end([*UNDISTURBED[name], "--out", name], folder)

    with ThreadPoolExecutor(2) as pool:  # while one process waits for others, there is room
        for name, end in zip(UNDISTURBED, pool.map(run, UNDISTURBED), strict=True):
            assert end.code == 0, end.errors
            assert "150 rows were labelled from 30 given labels of 3 classes." in end.out
            if "torchrun" not in name:
                assert end.errors == ""
    return folder


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Which results of two runs are not the same."""
    return [name for name in one["files"] if one["files"][name] != other["files"][name]] + [
        name for name in ("metrics", "results") if one[name] != other[name]
    ]


def test_as_many_workers_give_the_same_results_again(folder: Path) -> None:
    first, again = products(folder / "workers"), products(folder / "again")
    assert differences(first, again) == []
    assert first["files"].keys() == {*FILES} - {"metrics.jsonl", "run.json"}


def test_two_workers_give_other_results_than_one(folder: Path) -> None:
    alone, workers = products(folder / "alone"), products(folder / "workers")
    assert "posterior.safetensors" in differences(alone, workers)
    # They share the baseline, and twice as many images went through networks in phase one.
    for phase in ("supervised", "one"):
        one, two = (
            [line for line in run["metrics"] if line["phase"] == phase] for run in (alone, workers)
        )
        assert len(one) == len(two)
        if phase == "supervised":
            assert one == two
        else:
            assert [2 * line["image_passes"] for line in one] == [l["image_passes"] for l in two]  # noqa: E741


def test_torchrun_gives_the_same_results_as_workers(folder: Path) -> None:
    for workers, under_torchrun in (("workers", "torchrun"), ("data", "data-torchrun")):
        assert differences(products(folder / workers), products(folder / under_torchrun)) == []


def test_sharing_rows_gives_other_results_than_sharing_trajectories(folder: Path) -> None:
    runs = [products(folder / name) for name in ("workers", "data", "data-torchrun-4")]
    assert len({run["files"]["posterior.safetensors"] for run in runs}) == 3


def assert_complete(run: Path, processes: int) -> None:
    """All files of a run are there, nothing else, and every row has its label."""
    assert sorted(path.name for path in run.iterdir()) == FILES
    with (run / "labels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [str(row) for row in range(ROWS)]
    inferred = [row for row in rows if row["source"] == "inferred"]
    assert len(inferred) == ROWS - LABELLED
    right = sum(row["label"] == str(int(row["id"]) % 3) for row in inferred)
    assert right > 0.7 * len(inferred)
    phases = [line["phase"] for line in products(run)["metrics"]]
    assert [phases.count(phase) for phase in ("one", "two")] == [2, 3]
    record = json.loads((run / "run.json").read_text())
    assert record["processes"] == processes
    assert record["results"]["bytes_sent"] > 0


@pytest.mark.parametrize(
    ("name", "processes"),
    [("workers", 2), ("torchrun", 2), ("data", 2), ("data-torchrun", 2), ("data-torchrun-4", 4)],
)
def test_runs_are_complete_and_only_the_first_process_wrote(
    folder: Path, name: str, processes: int
) -> None:
    assert_complete(folder / name, processes)
    # Nor is anything beside them but the data that the processes share.
    names = {path.name for path in folder.iterdir()}
    assert names >= {"stripes.npz", ".saas-cache"}
    assert all(".partial" not in name and ".replaced" not in name for name in names)
    assert [path.suffix for path in (folder / ".saas-cache").iterdir()] == [".rows"]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of one's own with the same data."""
    write_stripes(tmp_path / "stripes.npz")
    return tmp_path


class Machines:
    """Two network namespaces that are joined; where none can be made, two loopback addresses."""

    def __init__(self, stack: ExitStack) -> None:
        self.prefixes: list[list[str]] = [[], []]
        self.addresses, self.interface = ["127.0.0.1", "127.0.0.2"], "lo"
        names = [f"saas-{os.getpid()}-{n}" for n in range(2)]
        ends = [f"saas{os.getpid() % 100_000}{end}" for end in "ab"]
        try:
            for name in names:
                ip("netns", "add", name)
                stack.callback(ip, "netns", "del", name)  # its end of the cable goes with it
            ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
            for n, (name, end) in enumerate(zip(names, ends, strict=True), start=1):
                ip("link", "set", end, "netns", name)
                ip("-n", name, "link", "set", end, "name", "cable")
                ip("-n", name, "address", "add", f"10.213.17.{n}/24", "dev", "cable")
                for device in ("lo", "cable"):
                    ip("-n", name, "link", "set", device, "up")
        except (OSError, subprocess.CalledProcessError):
            return
        self.prefixes = [["ip", "netns", "exec", name] for name in names]
        self.addresses, self.interface = ["10.213.17.1", "10.213.17.2"], "cable"

    def torchrun(self, n: int, port: int) -> list[str]:
        """What starts two of four processes on the n-th machine."""
        options = [f"--nnodes=2 --node-rank={n} --local-addr={self.addresses[n]}"]
        options += [f"--master-addr={self.addresses[0]} --master-port={port}"]
        return [*self.prefixes[n], *torchrun(2, *" ".join(options).split())]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=LIMIT)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def test_four_processes_on_two_machines(folder: Path, own: Path) -> None:
    with ExitStack() as stack:
        machines, port = Machines(stack), free_port()
        begun = []
        for mode, at in (("trajectories", port), ("data", port + 1)):
            command = [SAAS, "label", *QUICK, "--parallel", mode, "--out", mode]
            for n in range(2):
                one = started(
                    [*machines.torchrun(n, at), *command],
                    own,
                    GLOO_SOCKET_IFNAME=machines.interface,
                )
                begun.append(stack.enter_context(one))
        ends = [ended(command.process) for command in begun]
    for n, end in enumerate(ends):
        assert end.code == 0, end.errors
        assert ("150 rows were labelled" in end.out) == (n % 2 == 0)
        assert bool(end.out) == (n % 2 == 0)
    for mode in ("trajectories", "data"):
        assert_complete(own / mode, 4)
    assert differences(products(own / "data"), products(folder / "data-torchrun-4")) == []
    other = products(folder / "workers")
    assert "posterior.safetensors" in differences(products(own / "trajectories"), other)


def has_ended_an_outer_iteration(run: Path) -> bool:
    return '"one"' in (run / "metrics.jsonl").read_text()


def resume(run: str) -> list[str]:
    return [SAAS, "label", "--out", run, "--resume"]


@needs_proc
def test_runs_with_workers_survive_a_crash_and_ctrl_c(folder: Path, own: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(partial(disturb, own), ["trajectories", "data"]))
    for mode, undisturbed in (("trajectories", "workers"), ("data", "data")):
        assert differences(products(own / mode), products(folder / undisturbed)) == []


def disturb(own: Path, mode: str) -> None:
    """A worker is killed, the run goes on and is interrupted, and goes on to its end."""
    command = [SAAS, "label", *QUICK, *TWO_WORKERS, "--parallel", mode, *OFTEN, "--out", mode]
    how = f"Continue with: saas label --out {mode} --resume"
    run = own / mode
    with started(command, own) as begun:
        begun.wait_until(lambda: are_inside(run))
        (worker,) = begun.workers()
        os.kill(worker, signal.SIGKILL)
        end = ended(begun.process)
        assert begun.alive() == []
    assert (end.code, end.errors) == (1, f"saas: worker 1 ended by signal 9. {how}\n")
    assert are_inside(run)
    assert not (run / "model.safetensors").exists()
    if mode == "data":  # the worker may be killed before it has saved what the first process has
        newest_checkpoint(run, 1).unlink()

    with started([*resume(mode), "--checkpoint-every", "1h"], own) as begun:
        begun.wait_until(lambda: has_ended_an_outer_iteration(run))
        before = newest_checkpoint(run, 1)
        os.killpg(begun.process.pid, signal.SIGINT)  # as a terminal does
        end = ended(begun.process)
        assert begun.alive() == []
    assert (end.code, end.errors) == (130, "")
    assert end.out.splitlines()[-1] == f"Stopped. {how}"
    assert newest_checkpoint(run, 1) > before
    assert are_inside(run)

    end = run_to_end(resume(mode), own)
    assert (end.code, end.errors) == (0, "")


def newest_checkpoint(run: Path, rank: int) -> Path:
    return max((run / "checkpoint" / f"rank{rank}").glob("*.json"))


def test_torchrun_ends_at_once_where_the_run_is_finished(folder: Path) -> None:
    before = products(folder / "torchrun")
    end = run_to_end([*torchrun(2), *resume("torchrun")], folder)
    assert (end.code, end.out) == (0, "torchrun is finished already.\n"), end.errors
    assert products(folder / "torchrun") == before


def test_torchrun_goes_on_in_phase_two(folder: Path, own: Path) -> None:
    """Where no trajectories are wanted any more: the other process has nothing to do."""
    at_every_step = ["--checkpoint-every", "0.001s", "--out", "run"]
    with started([SAAS, "label", *QUICK, *TWO_WORKERS, *at_every_step], own) as begun:
        begun.wait_until(lambda: facts(own / "run", 0).get("stage") == "two")
    assert not (own / "run" / "model.safetensors").exists()
    end = run_to_end([*torchrun(2), *resume("run")], own)
    assert end.code == 0, end.errors
    assert differences(products(own / "run"), products(folder / "torchrun")) == []
