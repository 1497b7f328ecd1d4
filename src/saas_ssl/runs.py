"""A run directory: its files, and the promise that it is either whole or not there."""

import csv
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from saas_ssl.data.source import Skipped

RUN_FILE = "run.json"
METRICS_FILE = "metrics.jsonl"
LABELS_FILE = "labels.csv"
POSTERIOR_FILE = "posterior.safetensors"
SKIPPED_FILE = "skipped.csv"
MODEL_FILE, WEIGHTS_FILE = "model.json", "model.safetensors"
FILES = frozenset(
    {RUN_FILE, METRICS_FILE, LABELS_FILE, POSTERIOR_FILE, SKIPPED_FILE, MODEL_FILE, WEIGHTS_FILE}
)
"""All that a run writes; a directory with anything else in it is never deleted."""


def check_target(out: Path, overwrite: bool) -> None:
    """Raise ValueError unless a run may be written to `out`."""
    if not out.exists() and not out.is_symlink():
        return
    if not overwrite:
        raise ValueError(f"{out} exists: choose another --out, or give --overwrite")
    # Never delete what no run has written.
    if out.is_symlink() or not (out / RUN_FILE).is_file():
        raise ValueError(f"{out} is not a run directory, so it is not overwritten")
    foreign = sorted(path.name for path in out.iterdir() if path.name not in FILES)
    if foreign:
        raise ValueError(f"{out} holds {foreign[0]}, which no run has written: move it away first")


@contextmanager
def run_directory(out: Path, overwrite: bool = False) -> Iterator[Path]:
    """A directory to write a run into; it becomes `out` only if the block ends without error."""
    check_target(out, overwrite)
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    staging = _new_folder_beside(out, "partial")
    try:
        yield staging
        try:
            check_target(out, overwrite)
        except ValueError as error:  # it came to exist meanwhile: the work must not be lost
            staging.rename(other := free_name(out))
            raise ValueError(f"{error}; this run is in {other}") from None
        _put_in_place(staging, out)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _put_in_place(staging: Path, out: Path) -> None:
    """Rename to `out`; an earlier run there goes away once the new one is in its place."""
    if not out.exists():
        staging.rename(out)
        return
    replaced = _new_folder_beside(out, "replaced")
    out.rename(replaced)  # onto an empty folder
    try:
        staging.rename(out)
    except BaseException:
        replaced.rename(out)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


def _new_folder_beside(out: Path, kind: str) -> Path:
    folder = Path(mkdtemp(prefix=f".{out.name}.", suffix=f".{kind}", dir=out.absolute().parent))
    folder.chmod(0o777 & ~current_umask())  # mkdtemp's are for their owner alone
    return folder


def current_umask() -> int:
    """Which permissions new files do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def free_name(wanted: Path) -> Path:
    """`wanted`, or `wanted-2`, `wanted-3`, ...: the first that does not exist."""
    candidate, n = wanted, 1
    while candidate.exists():
        n += 1
        candidate = wanted.with_name(f"{wanted.name}-{n}")
    return candidate


def append_metrics(directory: Path, record: dict[str, Any]) -> None:
    """One more line of metrics.jsonl."""
    with (directory / METRICS_FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def write_run(directory: Path, record: dict[str, Any]) -> None:
    """Write run.json, with the versions and the hardware that produced it."""
    record = {**record, "versions": versions(), "hardware": hardware()}
    text = json.dumps(record, indent=2) + "\n"
    (directory / RUN_FILE).write_text(text, encoding="utf-8")


def read_run(directory: Path) -> dict[str, Any]:
    """What run.json says."""
    record: dict[str, Any] = json.loads((directory / RUN_FILE).read_text(encoding="utf-8"))
    return record


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by their names."""
    # A copy of each: safetensors refuses tensors that share memory or are not in row order.
    plain = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    path.write_bytes(save(plain))  # save_file would make the file readable by its owner alone


def write_skipped(path: Path, skipped: Sequence[Skipped]) -> None:
    """Write skipped.csv: what could not be used, and why; nothing if there is nothing to say."""
    if skipped:
        # Names that are not UTF-8 are a reason to be skipped, so they must be writable somehow.
        with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            writer = csv.writer(file)
            writer.writerow(Skipped._fields)
            writer.writerows(skipped)


def versions() -> dict[str, str]:
    """Of Python and of the packages that decide the numbers."""
    packages = {name: version(name) for name in ("saas-ssl", "torch", "numpy", "pillow")}
    return {"python": platform.python_version(), **packages}


def hardware() -> dict[str, Any]:
    """What ran it, without anything that names the machine or its user."""
    return {
        "platform": f"{sys.platform} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
