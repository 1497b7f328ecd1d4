"""What the processes of a command do to each other and to the machine."""

import fcntl
import os
import signal
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from processes import SAAS, ended
from worker_runs import (
    OFTEN,
    PROC,
    QUICK,
    TWO_WORKERS,
    are_inside,
    facts,
    needs_proc,
    run_to_end,
    started,
    torchrun,
    write_stripes,
)

SIOCGIFADDR = 0x8915


@needs_proc
def test_a_worker_that_dies_at_once_ends_the_run_too(tmp_path: Path) -> None:
    """Before it has met the others: they must not wait for it for ever."""
    write_stripes(tmp_path / "stripes.npz")
    with started([SAAS, "label", *QUICK, *TWO_WORKERS, "--out", "run"], tmp_path) as begun:
        begun.wait_until(lambda: bool(begun.workers()))
        os.kill(begun.workers()[0], signal.SIGKILL)
        end = ended(begun.process)
        assert begun.alive() == []
    assert end.code == 1
    assert end.errors.startswith("saas: worker 1 ended by signal 9")
    assert end.errors.count("\n") == 1
    assert not (tmp_path / "run").exists()


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


def test_torchrun_says_how_many_processes_there_are(tmp_path: Path) -> None:
    write_stripes(tmp_path / "stripes.npz")
    end = run_to_end([*torchrun(2), SAAS, "label", *QUICK, *TWO_WORKERS, "--out", "run"], tmp_path)
    assert end.code == 1
    sentence = "saas: under torchrun its --nproc-per-node says how many processes there are"
    assert sentence in end.errors.splitlines()
    assert [path.name for path in tmp_path.iterdir()] == ["stripes.npz"]
