"""The command with several processes: real ones, on one machine and on two that are joined."""

import csv
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from processes import LIMIT, SAAS, Ended, ended, products, wait_until

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
PROC, SIOCGIFADDR = Path("/proc"), 0x8915

ROWS, LABELLED = 180, 30
QUICK = ["stripes.npz", "--augmentation", "translate", "--batch-size", "25", "--set", "width=4"]
QUICK += ["--inner-epochs", "4", "--outer-iterations", "2", "--set", "classifier_epochs=3"]
QUICK += ["--posterior-lr", "1"]  # or all probabilities would be the least or the greatest at once
OFTEN = ["--checkpoint-every", "0.05s"]
TWO_WORKERS, SHARED_ROWS = ["--workers", "2"], ["--parallel", "data"]
FILES = ["labels.csv", "metrics.jsonl", "model.json", "model.safetensors"]
FILES += ["posterior.safetensors", "report.html", "run.json"]

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


def facts(run: Path, rank: int) -> dict[str, Any]:
    """The newest checkpoint of a rank, while it may be writing another one."""
    checkpoints = run / "checkpoint" / (f"rank{rank}" if rank else "")
    for file in sorted(checkpoints.glob("*.json"), reverse=True):
        with suppress(FileNotFoundError):
            found: dict[str, Any] = json.loads(file.read_text())
            return found
    return {}


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


def are_inside(run: Path) -> bool:
    """Whether both ranks have saved an inner loop."""
    both = [facts(run, rank) for rank in range(2)]
    return all(found.get("stage") == "one" and found["t"] > 0 for found in both)


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


@needs_proc
def test_a_worker_that_dies_at_once_ends_the_run_too(own: Path) -> None:
    """Before it has met the others: they must not wait for it for ever."""
    with started([SAAS, "label", *QUICK, *TWO_WORKERS, "--out", "run"], own) as begun:
        begun.wait_until(lambda: bool(begun.workers()))
        os.kill(begun.workers()[0], signal.SIGKILL)
        end = ended(begun.process)
        assert begun.alive() == []
    assert end.code == 1
    assert end.errors.startswith("saas: worker 1 ended by signal 9")
    assert end.errors.count("\n") == 1
    assert not (own / "run").exists()


@dataclass(frozen=True)
class Waiting:
    """What is seen of a run whose worker is ready while the first process trains a baseline."""

    addresses: list[list[str]]  # where its processes wait for connections
    memory: dict[str, int]  # of the worker
    left: list[int]  # processes that are there a minute after the first was killed in phase one


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Waiting]:
    """Such runs with 12 kB and with 60 MB of rows."""
    folder = tmp_path_factory.mktemp("waiting")
    write_stripes(folder / "stripes.npz")
    x, y = np.random.default_rng(0).standard_normal((500, 30_000), dtype=np.float32), np.arange(500)
    np.savez(folder / "large.npz", x=x, y=np.where(y < 40, y % 2, -1))
    with ThreadPoolExecutor(2) as pool:
        names = ["stripes", "large"]
        return dict(zip(names, pool.map(partial(look_at, folder), names), strict=True))


def look_at(folder: Path, name: str) -> Waiting:
    run = folder / f"{name}-waiting"
    command = [SAAS, "label", f"{name}.npz", "--batch-size", "20", "--set", "width=2", *OFTEN]
    command += ["--inner-epochs", "10000", "--set", "classifier_epochs=20", *TWO_WORKERS]
    at_once = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}  # to free
    command += ["--out", run.name]
    with started(command, folder, **at_once, **another_interface()) as begun:
        begun.wait_until(lambda: bool(facts(run, 1)))
        (worker,) = begun.workers()
        addresses = [listening(pid) for pid in begun.alive()]
        memory = memory_of(worker)
        begun.wait_until(lambda: name == "large" or are_inside(run))  # where it asks nobody
        begun.process.kill()
        assert ended(begun.process).code == -signal.SIGKILL
        deadline = time.monotonic() + 60
        while begun.alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        return Waiting(addresses, memory, begun.alive())


def another_interface() -> dict[str, str]:
    """The network that a user may have chosen for processes on several machines."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no address
                wish = struct.pack("256s", name.encode())
                address = fcntl.ioctl(any_.fileno(), SIOCGIFADDR, wish)[20:24]
                if not socket.inet_ntoa(address).startswith("127."):
                    return {"GLOO_SOCKET_IFNAME": name}
    return {}


@needs_proc
def test_workers_listen_on_the_loopback_interface_only(waiting: dict[str, Waiting]) -> None:
    for addresses in waiting["stripes"].addresses:
        assert addresses
        assert all(address.startswith("127.") for address in addresses), addresses
    assert len(waiting["stripes"].addresses) == 2


@needs_proc
def test_workers_end_soon_after_the_first_process_is_killed(waiting: dict[str, Waiting]) -> None:
    assert [run.left for run in waiting.values()] == [[], []]


@needs_proc
def test_workers_share_the_rows_with_the_first_process(waiting: dict[str, Waiting]) -> None:
    """60 MB of rows make a worker larger by less than a third of that."""
    small, large = (waiting[name].memory for name in ("stripes", "large"))
    assert 0 < small["mapped"] < 1e6
    assert large["mapped"] == pytest.approx(60e6, rel=0.01)
    assert large["anonymous"] - small["anonymous"] < 20e6
    assert large["written"] == 0


def memory_of(pid: int) -> dict[str, int]:
    """Bytes of a process: not of any file, of the map of the rows, and of copies of its pages."""
    status = (PROC / str(pid) / "status").read_text()
    (anonymous,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    found = {"anonymous": 1024 * int(anonymous.split()[1]), "mapped": 0, "written": 0}
    inside = False
    for line in (PROC / str(pid) / "smaps").read_text().splitlines():
        key, *values = line.split()
        if not key.endswith(":"):  # the first line of a map, with its file at the end
            inside = line.endswith(".rows")
        elif inside and key in ("Size:", "Private_Dirty:"):
            found["mapped" if key == "Size:" else "written"] += 1024 * int(values[0])
    return found


def listening(pid: int) -> list[str]:
    """The addresses at which a process waits for connections, as four numbers or 32 digits."""
    links = set()
    for link in (PROC / str(pid) / "fd").iterdir():
        with suppress(OSError):
            links.add(os.readlink(link))
    found = []
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):
            for line in (PROC / str(pid) / "net" / table).read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if state == "0A" and f"socket:[{rest[5]}]" in links:
                    found.append(readable(local.partition(":")[0]))
    return found


def readable(digits: str) -> str:
    return socket.inet_ntoa(bytes.fromhex(digits)[::-1]) if len(digits) == 8 else digits


def test_torchrun_says_how_many_processes_there_are(own: Path) -> None:
    end = run_to_end([*torchrun(2), SAAS, "label", *QUICK, *TWO_WORKERS, "--out", "run"], own)
    assert end.code == 1
    sentence = "saas: under torchrun its --nproc-per-node says how many processes there are"
    assert sentence in end.errors.splitlines()
    assert [path.name for path in own.iterdir()] == ["stripes.npz"]


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
