import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from found import given, tensor
from saas_ssl.sources.finding import find
from samples import idx, noise, refusal, write, write_idx


@pytest.mark.parametrize("packed", [True, False])
def test_idx_files(tmp_path: Path, packed: bool) -> None:
    images, labels = noise(3, 5, 4), np.array([7, 0, 7], np.uint8)
    write_idx(tmp_path, images, labels)
    write_idx(tmp_path, noise(2, 5, 4), np.array([1, 2], np.uint8), "t10k")
    if not packed:
        for path in list(tmp_path.iterdir()):
            write(path.with_suffix(""), gzip.decompress(path.read_bytes()))
            path.unlink()
    source = find(f"idx:{tmp_path}")
    assert (tensor(source)[:, 0].numpy() == images).all()
    assert given(source) == {"0": "7", "1": "0", "2": "7"}
    assert source.classes == ["0", "7"]
    assert find(f"idx:{tmp_path}:train").labels == ["7", "0", "7"]
    assert find(f"idx:{tmp_path}:test").labels == ["1", "2"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (idx(noise(3, 5, 4))[:-1], "is cut off: it says [3, 5, 4] but has 59 bytes"),
        (idx(noise(3, 5, 4)) + b"x", "it says [3, 5, 4] but has 61 bytes"),
        (b"", "is not an idx file"),
        (idx(noise(3))[:6], "is not an idx file"),
        (b"\0\0\x0d\x03" + idx(noise(3, 5, 4))[4:], "is not an idx file of unsigned bytes"),
        (b"PK\x03\x04" + idx(noise(3, 5, 4))[4:], "is not an idx file"),
        (idx(noise(2, 5, 4)), "holds 2 train images but 3 labels"),
        (b"\0\0\x08\x03" + struct.pack(">III", *[2**32 - 1] * 3), "is cut off"),
    ],
    ids=["short", "long", "empty", "header cut", "type", "magic", "counts differ", "huge"],
)
def test_bad_idx_files_are_refused(tmp_path: Path, data: bytes, words: str) -> None:
    write(tmp_path / "train-labels-idx1-ubyte", idx(np.array([0, 1, 0], np.uint8)))
    write(tmp_path / "train-images-idx3-ubyte", data)
    assert words in refusal(lambda: find(f"idx:{tmp_path}"))


def test_a_broken_gzip_file_is_refused(tmp_path: Path) -> None:
    write_idx(tmp_path, noise(3, 5, 4), np.array([0, 1, 0], np.uint8))
    path = tmp_path / "train-images-idx3-ubyte.gz"
    for data in (path.read_bytes()[:-15], b"no gzip"):
        write(path, data)
        assert "broken gzip file" in refusal(lambda: find(f"idx:{tmp_path}"))


def test_idx_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    assert "no idx files of train images, such as train-images-idx3-ubyte.gz" in refusal(
        lambda: find(f"idx:{tmp_path}")
    )
    assert "is not a folder" in refusal(lambda: find(f"idx:{tmp_path}/none"))
    assert "no part 'validation'" in refusal(lambda: find(f"idx:{tmp_path}:validation"))
