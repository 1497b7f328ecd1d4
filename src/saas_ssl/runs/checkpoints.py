"""Checkpoints: safetensors and JSON, complete and on the disk before the one before goes away."""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

FORMAT = 1
_NOT_WHOLE = (
    *(OSError, SafetensorError, RecursionError),
    *(ValueError, LookupError, TypeError, AttributeError),  # JSON of something else
)


@dataclass(frozen=True)
class Checkpoint:
    """Where a process was: facts as JSON holds them, and tensors."""

    number: int
    facts: dict[str, Any]
    tensors: dict[str, Tensor]


class Checkpoints:
    """A folder of numbered checkpoints, of which the newest `kept` are there at any time.

    Both files of a checkpoint are written beside their place and renamed, the JSON last: it holds
    the hash of the tensors, so a checkpoint is either whole or not one.
    """

    def __init__(self, folder: Path, kept: int = 1) -> None:
        self._folder, self._kept = folder, kept

    def save(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Write one more; only when it is on the disk, older ones are removed."""
        self._folder.mkdir(parents=True, exist_ok=True)
        number = max(self._numbers(), default=0) + 1
        data = to_bytes(tensors)
        record = {**facts, "format": FORMAT, "sha256": hashlib.sha256(data).hexdigest()}
        write_safely(self._file(number, "safetensors"), data)
        write_safely(self._file(number, "json"), json.dumps(record).encode())
        sync_folder(self._folder)
        for old in self._numbers():
            if old <= number - self._kept:
                self._remove(old)

    def newest(self) -> Checkpoint | None:
        """The newest one that is whole."""
        for number in sorted(self._numbers(), reverse=True):
            with suppress(*_NOT_WHOLE):
                return self._read(number)
        return None

    def forget_after(self, number: int) -> None:
        """Remove those that other processes do not have, so that the next has the same number."""
        for newer in self._numbers():
            if newer > number:
                self._remove(newer)

    def _remove(self, number: int) -> None:
        for kind in ("json", "safetensors"):  # without the JSON it is no checkpoint any more
            self._file(number, kind).unlink(missing_ok=True)

    def _read(self, number: int) -> Checkpoint:
        record = json.loads(self._file(number, "json").read_text(encoding="utf-8"))
        if record.pop("format") != FORMAT:
            raise ValueError("another format")
        data = self._file(number, "safetensors").read_bytes()
        if hashlib.sha256(data).hexdigest() != record.pop("sha256"):
            raise ValueError("the tensors are not whole")
        return Checkpoint(number, record, load(data))

    def _numbers(self) -> list[int]:
        names = (path.name.partition(".") for path in self._folder.glob("*.json"))
        return [int(name) for name, _, kind in names if name.isdecimal() and kind == "json"]

    def _file(self, number: int, kind: str) -> Path:
        return self._folder / f"{number:06}.{kind}"


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors in the format of safetensors."""
    # A copy of each: safetensors refuses tensors that share memory or are not in row order.
    plain = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    return save(plain)


def write_safely(path: Path, data: bytes) -> None:
    """Write a file so that after a crash it is as before or as wanted, and nothing in between."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        with suppress(OSError):
            partial.unlink()


def sync_folder(folder: Path) -> None:
    """Make the names of new files as lasting as their contents."""
    with suppress(OSError):  # not every system can open a folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
