import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.io import savemat

from found import tensor
from saas_ssl.sources.finding import find
from samples import noise, refusal, write, write_svhn


@pytest.mark.parametrize("part", ["train", "test", "extra"])
def test_svhn_files(tmp_path: Path, part: str) -> None:
    images = noise(4, 32, 32, 3)
    write_svhn(tmp_path / f"{part}_32x32.mat", images, [1, 10, 9, 10])
    source = find(f"svhn:{tmp_path}:{part}")
    assert (tensor(source).numpy() == images.transpose(0, 3, 1, 2)).all()
    assert source.labels == ["1", "0", "9", "0"]
    assert source.classes == ["0", "1", "9"]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_svhn_files_packed_or_not(tmp_path: Path, packed: bool, rows: int) -> None:
    images, labels = noise(4, 4, 3, rows), np.arange(1, rows + 1)[:, None].astype(np.uint8)
    arrays = {"note": "text comes first", "y": labels, "z": np.ones((2, 2)), "X": images}
    savemat(tmp_path / "train_32x32.mat", arrays, do_compression=packed)
    source = find(f"svhn:{tmp_path}")
    assert (tensor(source).numpy() == images.transpose(3, 2, 0, 1)).all()
    assert source.labels == [str(k) for k in range(1, rows + 1)]


BAD_SVHN: dict[str, tuple[dict[str, NDArray[Any]], str]] = {
    "no X": ({"y": np.ones((2, 1), np.uint8)}, "with X and y"),
    "no y": ({"X": noise(4, 4, 3, 2)}, "with X and y"),
    "grey": ({"X": noise(4, 4, 2), "y": np.ones((2, 1), np.uint8)}, "X must be bytes"),
    "floats": ({"X": np.ones((4, 4, 3, 2)), "y": np.ones((2, 1), np.uint8)}, "X must be bytes"),
    "label 11": ({"X": noise(4, 4, 3, 2), "y": np.full((2, 1), 11, np.uint8)}, "from 1 to 10"),
    "too few": ({"X": noise(4, 4, 3, 2), "y": np.ones((1, 1), np.uint8)}, "each of 2 images"),
}


@pytest.mark.parametrize(("arrays", "words"), BAD_SVHN.values(), ids=BAD_SVHN)
def test_bad_svhn_files_are_refused(
    tmp_path: Path, arrays: dict[str, NDArray[Any]], words: str
) -> None:
    savemat(tmp_path / "train_32x32.mat", arrays)
    assert words in refusal(lambda: find(f"svhn:{tmp_path}"))


def test_broken_svhn_files_are_refused(tmp_path: Path) -> None:
    whole = write_svhn(tmp_path / "train_32x32.mat", noise(4, 8, 8, 3), [1, 2, 3, 4]).read_bytes()
    version_73 = whole[:124] + b"\x00\x02IM" + b"\x89HDF\r\n\x1a\n" + bytes(100)
    for data in (b"", b"text", whole[:127], whole[:300], whole[:-1], version_73):
        write(tmp_path / "train_32x32.mat", data)
        message = refusal(lambda: find(f"svhn:{tmp_path}"))
        assert "is not a MATLAB file of version 5 with X and y" in message


def test_a_number_type_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    # scipy's reader looks beyond its table of types for this one, and the process dies.
    savemat(tmp_path / "train_32x32.mat", {"X": noise(4, 4, 3, 2)})
    data = bytearray((tmp_path / "train_32x32.mat").read_bytes())
    at = data.index(noise(4, 4, 3, 2).tobytes(order="F")) - 8
    data[at : at + 4] = struct.pack("<I", 0xF0F0)
    write(tmp_path / "train_32x32.mat", bytes(data))
    assert "is not a MATLAB file" in refusal(lambda: find(f"svhn:{tmp_path}"))


def test_svhn_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    assert "train_32x32.mat does not exist" in refusal(lambda: find(f"svhn:{tmp_path}"))
    assert "no part 'dev'" in refusal(lambda: find(f"svhn:{tmp_path}:dev"))
