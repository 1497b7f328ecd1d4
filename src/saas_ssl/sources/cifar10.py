"""The original CIFAR-10 in its python or binary version, as an archive or unpacked."""

import io
import pickle
import pickletools
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from saas_ssl.sources.source import Source

_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_SPLITS = {"train": tuple(f"data_batch_{n}" for n in range(1, 6)), "test": ("test_batch",)}
_ARCHIVES = ("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz")
_FOLDERS = ("cifar-10-batches-py", "cifar-10-batches-bin")
_PIXELS = 3 * 32 * 32
_PYTHON_2 = 2  # the newest protocol of pickles that it wrote


def find_cifar10(place: Path, split: str = "train") -> Source:
    """The training or test part, from the archive itself, its unpacked folder or the one above."""
    if split not in _SPLITS:
        raise ValueError(f"CIFAR-10 has no part {split!r}: choose train or test")
    parts = [_parse(name, data) for name, data in _batches(place, _SPLITS[split])]
    x = torch.from_numpy(np.concatenate([pixels for pixels, _ in parts]).reshape(-1, 3, 32, 32))
    y = np.concatenate([labels for _, labels in parts])
    ids = [str(row) for row in range(len(y))]
    present = set(y.tolist())
    classes = [name for k, name in enumerate(_CLASSES) if k in present]
    return Source(ids, [_CLASSES[k] for k in y.tolist()], classes, x)


def _batches(place: Path, wanted: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """(Name, contents) of the batch files of either version, whichever is found first."""
    names = {f"{stem}{suffix}" for stem in wanted for suffix in ("", ".bin")}
    archives = [place] if place.is_file() else [place / name for name in _ARCHIVES]
    for folder in (place, *(place / name for name in _FOLDERS)):
        found = sorted(
            path for path in folder.glob("*_batch*") if path.name in names and path.is_file()
        )
        if found:
            return _one_version([(str(path), path.read_bytes()) for path in found], wanted, folder)
    for archive in archives:
        if archive.is_file():
            return _one_version(_members(archive, names), wanted, archive)
    raise ValueError(
        f"there is no CIFAR-10 in {place}: it needs {' or '.join(_ARCHIVES)}, or their files"
    )


def _one_version(
    found: list[tuple[str, bytes]], wanted: tuple[str, ...], place: Path
) -> list[tuple[str, bytes]]:
    binary = [(name, data) for name, data in found if name.endswith(".bin")]
    python = [(name, data) for name, data in found if not name.endswith(".bin")]
    for version in (binary, python):
        if len(version) == len(wanted):
            return version
    raise ValueError(f"{place} has only {len(found)} of the {len(wanted)} CIFAR-10 files {wanted}")


def _members(archive: Path, names: set[str]) -> list[tuple[str, bytes]]:
    """Files of an archive by name; nothing is unpacked to the disk."""
    found = list[tuple[str, bytes]]()
    try:
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                name = member.name.rsplit("/", 1)[-1]
                if member.isfile() and name in names:
                    file = tar.extractfile(member)
                    found.append((f"{archive}/{name}", file.read() if file else b""))
    except Exception:  # a broken file makes its readers raise anything
        raise ValueError(f"{archive} is not a tar archive, or a broken one") from None
    return sorted(found)


def _parse(name: str, data: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(Pixels (n, 3072), labels (n,)) of one batch file."""
    pixels, labels = (_parse_binary if name.endswith(".bin") else _parse_python)(name, data)
    if (
        labels.ndim != 1
        or len(pixels) != len(labels)
        or not len(labels)
        or not ((labels >= 0) & (labels < len(_CLASSES))).all()
    ):
        raise ValueError(f"{name} has no label from 0 to 9 for each of its images")
    return pixels, labels


def _parse_binary(name: str, data: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if len(data) % (1 + _PIXELS):
        raise ValueError(f"{name} is cut off: each image takes {1 + _PIXELS} bytes")
    rows = np.frombuffer(data, np.uint8).reshape(-1, 1 + _PIXELS)
    return rows[:, 1:], rows[:, 0].astype(np.int64)


def _parse_python(name: str, data: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in strings
            _check_opcodes(data)
            batch = _PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
        array, labels = batch[b"data"], batch[b"labels"]
        _version, (n, width), kind, in_columns, pixels = array.state
        if (
            width != _PIXELS
            or kind.code not in (b"u1", "u1")
            or in_columns
            or n * width != len(pixels)
        ):
            raise ValueError("not images")
        return np.frombuffer(pixels, np.uint8).reshape(n, width), np.array(labels, np.int64)
    except Exception:  # pickle raises anything on broken data
        raise ValueError(f"{name} is not a batch of CIFAR-10's python version") from None


def _check_opcodes(data: bytes) -> None:
    """Refuse what Python 2 did not write: some newer opcodes take any memory they ask for."""
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.proto > _PYTHON_2 or ("PUT" in opcode.name and int(argument or 0) > len(data)):
            raise pickle.UnpicklingError(f"unexpected {opcode.name}")


class _Stated:
    """Stands for an array or a type of numpy in a pickle: keeps its state and does nothing."""

    state: Any = None

    def __init__(self, *code: Any) -> None:
        self.code = code[0] if code else None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"unexpected encoding {encoding}")
    return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: _Stated(),
    ("numpy._core.multiarray", "_reconstruct"): lambda *_: _Stated(),
    ("numpy", "ndarray"): _Stated,
    ("numpy", "dtype"): _Stated,
    ("_codecs", "encode"): _encode,
}


class _PlainUnpickler(pickle.Unpickler):
    """Numbers, text, lists and dicts only; no name in the pickle is ever looked up."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"{module}.{name} is not plain data")
        return _STAND_INS[module, name]
