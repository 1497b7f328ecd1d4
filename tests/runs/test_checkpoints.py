"""Checkpoints are whole or not there, and the one before stays until the next is on the disk."""

import hashlib
import json
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from saas_ssl.labelling.stopping import StopSignals
from saas_ssl.runs.checkpoints import Checkpoints, sync_folder, to_bytes, write_safely

BIG = 100_000  # numbers: more than the files of the tests may hold


def tensors(n: int, size: int = 5) -> dict[str, Tensor]:
    return {"x": torch.arange(size, dtype=torch.float64) + n, "n": torch.tensor(n)}


def number_of(store: Checkpoints) -> int:
    """That of the newest checkpoint, which must hold what was saved under it; 0: there is none."""
    found = store.newest()
    if found is None:
        return 0
    assert found.facts == {"stage": "one", "changes": [0.5] * found.number}
    assert found.tensors.keys() == {"x", "n"}
    assert found.tensors["x"][0] == found.number
    assert int(found.tensors["n"]) == found.number
    return found.number


def save(store: Checkpoints, n: int, size: int = 5) -> None:
    store.save({"stage": "one", "changes": [0.5] * n}, tensors(n, size))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_is_read_again(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path / "deep" / "checkpoint")
    assert store.newest() is None
    x = torch.arange(12.0).reshape(3, 4)
    kinds = {
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "whole": torch.tensor(7),
        "bytes": torch.tensor([0, 255], dtype=torch.uint8),
        "none": torch.zeros(0, 3),
        "not in row order": x.T,
        "shared": x,
        "a part": x[1:, 1:],
        "learnt": torch.nn.Parameter(x),
    }
    facts = {"stage": "two", "scores": [0.1, -1e300], "inner_error": None}
    store.save(facts, kinds)
    found = store.newest()
    assert found is not None
    assert found.facts == facts
    assert found.tensors.keys() == kinds.keys()
    for name, value in kinds.items():
        assert found.tensors[name].dtype == value.dtype
        assert torch.equal(found.tensors[name], value), name


def test_a_checkpoint_is_json_and_safetensors(tmp_path: Path) -> None:
    save(Checkpoints(tmp_path), 1)
    assert names(tmp_path) == ["000001.json", "000001.safetensors"]
    record = json.loads((tmp_path / "000001.json").read_text())
    data = (tmp_path / "000001.safetensors").read_bytes()
    assert record["sha256"] == hashlib.sha256(data).hexdigest()
    assert load_file(tmp_path / "000001.safetensors").keys() == {"x", "n"}


@pytest.mark.parametrize("kept", [1, 2])
def test_the_newest_are_kept(tmp_path: Path, kept: int) -> None:
    store = Checkpoints(tmp_path, kept)
    for n in range(1, 6):
        save(store, n)
        numbers = range(max(1, n - kept + 1), n + 1)
        kinds = ("json", "safetensors")
        assert names(tmp_path) == [f"{old:06}.{kind}" for old in numbers for kind in kinds]
        assert number_of(store) == n
    store.forget_after(5)
    assert number_of(store) == 5
    store.forget_after(4)
    assert number_of(store) == (4 if kept == 2 else 0)
    store.forget_after(3)
    assert names(tmp_path) == []


def test_numbers_go_on_in_another_process(tmp_path: Path) -> None:
    for n in range(1, 4):
        save(Checkpoints(tmp_path), n)
    assert number_of(Checkpoints(tmp_path)) == 3


def test_numbers_are_numbers_and_not_words(tmp_path: Path) -> None:
    save(Checkpoints(tmp_path), 1)
    for kind in ("json", "safetensors"):
        (tmp_path / f"000001.{kind}").rename(tmp_path / f"999999.{kind}")
    store = Checkpoints(tmp_path)
    store.save({}, tensors(0))
    found = store.newest()
    assert found is not None
    assert found.number == 1_000_000
    assert names(tmp_path) == ["1000000.json", "1000000.safetensors"]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def swap(path: Path) -> None:
    """Whole tensors, but others."""
    path.write_bytes(to_bytes(tensors(9)))


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


SPOILS: dict[str, Callable[[Path, Path], object]] = {
    "no tensors": lambda _, tensors: tensors.unlink(),
    "empty tensors": lambda _, tensors: tensors.write_bytes(b""),
    "cut tensors": lambda _, tensors: cut(tensors),
    "a bit of the tensors": lambda _, tensors: flip(tensors),
    "other tensors": lambda _, tensors: swap(tensors),
    "a folder of tensors": lambda _, tensors: make_folder(tensors),
    "empty JSON": lambda record, _: record.write_bytes(b""),
    "zeros": lambda record, _: record.write_bytes(bytes(record.stat().st_size)),
    "cut JSON": lambda record, _: cut(record),
    "not UTF-8": lambda record, _: record.write_bytes(b"\xff"),
    "a list": lambda record, _: record.write_text("[1, 2]"),
    "a number": lambda record, _: record.write_text("1"),
    "no hash": lambda record, _: record.write_text('{"format": 1}'),
    "another format": lambda record, _: change(record, format=2),
    "another hash": lambda record, _: change(record, sha256="0" * 64),
    "deep": lambda record, _: record.write_text("[" * 200_000),
}


@pytest.mark.parametrize("what", SPOILS)
def test_a_broken_checkpoint_is_none_and_the_one_before_counts(tmp_path: Path, what: str) -> None:
    store = Checkpoints(tmp_path, kept=2)
    for n in (1, 2, 3):
        save(store, n)
    SPOILS[what](tmp_path / "000003.json", tmp_path / "000003.safetensors")
    assert number_of(store) == 2
    if not (tmp_path / "000003.safetensors").is_dir():
        save(store, 4)  # it goes on from there, under a number that was not used
        assert number_of(store) == 4
        assert names(tmp_path)[-2:] == ["000004.json", "000004.safetensors"]


def test_a_broken_checkpoint_alone_is_no_checkpoint(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    save(store, 1)
    cut(tmp_path / "000001.safetensors")
    assert store.newest() is None
    save(store, 2)
    assert number_of(store) == 2
    assert names(tmp_path) == ["000002.json", "000002.safetensors"]


def test_what_a_killed_process_was_writing_is_none(tmp_path: Path) -> None:
    """Files beside their places, and tensors whose JSON never came."""
    store = Checkpoints(tmp_path)
    save(store, 1)
    (tmp_path / "000002.safetensors.partial").write_bytes(to_bytes(tensors(2))[:40])
    assert number_of(store) == 1
    (tmp_path / "000002.safetensors").write_bytes(to_bytes(tensors(7)))
    (tmp_path / "000002.json.partial").write_text('{"format": 1, "stage')
    for strange in ("lock", "notes.json", "000009.json.partial", "x1.json"):
        (tmp_path / strange).touch()
    assert number_of(store) == 1
    save(store, 2)
    assert number_of(store) == 2
    kept = {"lock", "notes.json", "000009.json.partial", "x1.json"}
    assert set(names(tmp_path)) == {"000002.json", "000002.safetensors"} | kept


@pytest.mark.parametrize("kept", [1, 2])
@pytest.mark.parametrize("name", ["safetensors.partial", "safetensors", "json.partial"])
def test_a_write_that_fails_leaves_the_checkpoint_before(
    tmp_path: Path, name: str, kept: int
) -> None:
    store = Checkpoints(tmp_path, kept)
    save(store, 1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    in_the_way = tmp_path / f"000002.{name}"
    in_the_way.mkdir()
    for _ in range(2):
        with pytest.raises(OSError, match="irectory"):
            save(store, 2)
        assert number_of(store) == 1
        assert {name: (tmp_path / name).read_bytes() for name in before} == before
        assert [path for path in tmp_path.glob("*.partial") if path.is_file()] == []
    in_the_way.rmdir()
    save(store, 2)
    assert number_of(store) == 2


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    """In a process of its own, since no limit on files can be taken back."""
    store = Checkpoints(tmp_path)
    save(store, 1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def no_more_than_a_page() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    code = (
        "import sys; from pathlib import Path; from test_checkpoints import *\n"
        "store = Checkpoints(Path(sys.argv[1]))\n"
        "try: save(store, 2, int(sys.argv[2]))\n"
        "except OSError as error: sys.exit(f'{error.errno}, still {number_of(store)}')"
    )
    here = str(Path(__file__).parent)
    for size, said in ((BIG, "27, still 1\n"), (5, "")):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), str(size)],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            preexec_fn=no_more_than_a_page,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )
        assert done.stderr == said
        if said:
            assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert number_of(store) == 2


def test_everything_is_on_the_disk_before_the_old_one_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What os.fsync is called with, and what is there at that moment."""
    fsync, seen = os.fsync, list[tuple[str, list[str]]]()

    def noted(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else path.name
        size = os.fstat(descriptor).st_size
        assert size > 0  # what was written has left the buffers of Python
        seen.append((kind, names(tmp_path)))
        fsync(descriptor)

    store = Checkpoints(tmp_path)
    save(store, 1)
    monkeypatch.setattr(os, "fsync", noted)
    save(store, 2)
    old = ["000001.json", "000001.safetensors"]
    assert seen == [
        ("000002.safetensors.partial", [*old, "000002.safetensors.partial"]),
        ("000002.json.partial", [*old, "000002.json.partial", "000002.safetensors"]),
        ("folder", [*old, "000002.json", "000002.safetensors"]),
    ]
    assert names(tmp_path) == ["000002.json", "000002.safetensors"]


def test_a_file_is_as_before_or_as_wanted(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_safely(path, b"first")
    write_safely(path, b"second")
    assert path.read_bytes() == b"second"
    (tmp_path / "run.json.partial").mkdir()
    with pytest.raises(IsADirectoryError):
        write_safely(path, b"third")
    assert path.read_bytes() == b"second"
    sync_folder(tmp_path / "nowhere")  # cannot be opened, and is no reason to fail


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_first_signal_is_noted_and_a_second_ctrl_c_acts(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with StopSignals() as stop:
        assert stop.asked is None
        signal.raise_signal(number)
        assert stop.asked == number
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_being_told_to_end_twice_is_no_hurry() -> None:
    with StopSignals() as stop:
        try:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
                signal.raise_signal(number)
                assert stop.asked == number
        except KeyboardInterrupt:
            pytest.fail("it hurries")
