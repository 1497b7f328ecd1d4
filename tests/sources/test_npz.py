import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from found import given, tensor
from saas_ssl.sources.finding import find
from saas_ssl.sources.reading import read
from samples import noise, refusal, write


def npz(tmp_path: Path, **arrays: NDArray[Any]) -> str:
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    return str(tmp_path / "a.npz")


@pytest.mark.parametrize("layout", ["NHW", "NHWC grey", "NHWC", "NCHW grey", "NCHW"])
def test_arrays_of_images_in_any_layout(tmp_path: Path, layout: str) -> None:
    channels = 1 if "grey" in layout or layout == "NHW" else 3
    expected = noise(4, channels, 10, 9)
    x = expected
    if layout == "NHW":
        x = expected[:, 0]
    elif layout.startswith("NHWC"):
        x = expected.transpose(0, 2, 3, 1)
    data = read(npz(tmp_path, x=x, y=np.array([0, 1, -1, 1])))
    assert (data.x.numpy() == expected).all()
    assert data.y.tolist() == [0, 1, -1, 1]
    assert data.ids == ["0", "1", "2", "3"]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", "g"])
def test_images_from_0_to_1(tmp_path: Path, dtype: str) -> None:
    x = np.linspace(0, 1, 2 * 8 * 8).reshape(2, 8, 8).astype(dtype)
    found = tensor(find(npz(tmp_path, x=x, y=np.array([0, 1]))))
    assert found.dtype == torch.uint8
    assert np.abs(found[:, 0].numpy() - x.astype(float) * 255).max() <= 0.6


def test_images_of_black_and_white(tmp_path: Path) -> None:
    x = noise(2, 8, 8) > 128
    found = tensor(find(npz(tmp_path, x=x, y=np.array([0, 1]))))
    assert (found[:, 0].numpy() == np.where(x, 255, 0)).all()


@pytest.mark.parametrize("dtype", ["f8", ">f4", "i2", "u1", "u8", "?", "g"])
def test_features_of_any_numbers(tmp_path: Path, dtype: str) -> None:
    x = np.array([[0, 1], [1, 0]]).astype(dtype)
    found = tensor(find(npz(tmp_path, x=x)))
    assert found.dtype == torch.float32
    assert found.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (np.array([0, -1, 10]), ["0", None, "10"]),
        (np.array([0, np.nan, 2.0]), ["0", None, "2"]),
        (np.array(["cat", "", " dog "]), ["cat", None, "dog"]),
        (np.array([b"cat", b"", "Bär".encode()]), ["cat", None, "Bär"]),
        (np.array([True, False, True]), ["1", "0", "1"]),
        (np.array([0, 1, 255], np.uint8), ["0", "1", "255"]),
    ],
)
def test_labels_of_arrays(tmp_path: Path, y: NDArray[Any], expected: list[str | None]) -> None:
    assert find(npz(tmp_path, x=np.zeros((3, 2)), y=y)).labels == expected


@pytest.mark.parametrize("kind", ["U", "S"])
def test_arrays_may_name_their_classes_and_rows(tmp_path: Path, kind: str) -> None:
    source = find(
        npz(
            tmp_path,
            x=np.zeros((3, 2)),
            y=np.array([2, 0, -1]),
            classes=np.array(["zebra", "cow", "ant"]).astype(kind),
            ids=np.array(["p", "q", "r"]).astype(kind),
        )
    )
    assert given(source) == {"p": "ant", "q": "zebra", "r": None}
    assert source.classes == ["zebra", "ant"]  # in their own order; no row is a cow


BAD_ARRAYS: dict[str, tuple[dict[str, Any], str]] = {
    "no x": ({"images": np.zeros((2, 2))}, "no array x"),
    "one dimension": ({"x": np.zeros(4)}, "its shape is (4,)"),
    "two channels": ({"x": np.zeros((2, 8, 8, 2))}, "its shape is (2, 8, 8, 2)"),
    "text": ({"x": np.array([["a"], ["b"]])}, "x must hold numbers"),
    "complex": ({"x": np.zeros((2, 2), complex)}, "x must hold numbers"),
    "0 to 255 in floats": ({"x": np.full((2, 4, 4), 200.0)}, "uint8, or floating-point numbers"),
    "wide integers": ({"x": np.zeros((2, 4, 4), np.int32)}, "uint8, or floating-point numbers"),
    "not a number": ({"x": np.full((2, 4, 4), np.nan)}, "uint8, or floating-point numbers"),
    "labels too few": ({"x": np.zeros((3, 2)), "y": np.zeros(2)}, "each of the 3 rows"),
    "fractions": ({"x": np.zeros((2, 2)), "y": np.array([0.5, 1])}, "whole numbers"),
    "infinite": ({"x": np.zeros((2, 2)), "y": np.array([np.inf, 1])}, "whole numbers"),
    "negative": ({"x": np.zeros((2, 2)), "y": np.array([-2, 1])}, "whole numbers"),
    "huge": ({"x": np.zeros((2, 2)), "y": np.array([2**64 - 1, 1], np.uint64)}, "whole numbers"),
    "dates": ({"x": np.zeros((2, 2)), "y": np.zeros(2, "M8[s]")}, "y must hold numbers or text"),
    "classes too few": (
        {"x": np.zeros((2, 2)), "y": np.array([0, 2]), "classes": np.array(["a", "b"])},
        "the label 2, but there are 2 classes",
    ),
    "a label that is no class": (
        {"x": np.zeros((2, 2)), "y": np.array(["a", "c"]), "classes": np.array(["a", "b"])},
        "the label 'c', which is none of the classes",
    ),
    "classes in a square": (
        {"x": np.zeros((2, 2)), "y": np.zeros(2), "classes": np.array([["a"]])},
        "classes must be a list",
    ),
    "ids too few": ({"x": np.zeros((2, 2)), "ids": np.array(["a"])}, "2 rows but 1 ids"),
}


@pytest.mark.parametrize(("arrays", "words"), BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_bad_arrays_are_refused(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    message = refusal(lambda: find(npz(tmp_path, **arrays)))
    assert words in message
    assert "a.npz" in message


@pytest.mark.parametrize("shape", [(0, 4, 4), (0, 4)])
def test_arrays_of_no_rows_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    assert "no row has a label" in refusal(lambda: read(npz(tmp_path, x=np.zeros(shape))))


class Touch:
    """Unpickling it leaves a file."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self._marker}'",)


def test_objects_in_an_npz_file_are_refused_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "was here"
    objects = np.array([Touch(marker), Touch(marker)], dtype=object)
    for arrays in ({"x": objects}, {"x": np.zeros((2, 2)), "y": objects}):
        message = refusal(lambda arrays=arrays: find(npz(tmp_path, **arrays)))  # type: ignore[misc]
        assert "holds Python objects, which are never loaded" in message
    assert not marker.exists()


def test_broken_npz_files_are_refused(tmp_path: Path) -> None:
    whole = Path(npz(tmp_path, x=np.zeros((2, 2)))).read_bytes()
    array = io.BytesIO()
    np.save(array, np.zeros(3))
    for data in (b"", b"text", whole[:100], whole[:-30], array.getvalue()):
        path = write(tmp_path / "broken.npz", data)
        assert "is not an npz file, or a broken one" in refusal(lambda path=path: find(str(path)))  # type: ignore[misc]


def test_a_zip_file_of_something_else_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x", "text")
    assert "x must hold numbers" in refusal(lambda: find(str(tmp_path / "a.npz")))


def test_large_arrays_of_images_are_made_small(tmp_path: Path) -> None:
    x = np.repeat(np.array([40, 90], np.uint8), 100 * 100).reshape(2, 100, 100)
    data = read(npz(tmp_path, x=x, y=np.array([0, 1])))
    assert data.x.shape == (2, 1, 32, 32)
    assert data.x[:, 0, 3, 3].tolist() == [40, 90]
    assert read(npz(tmp_path, x=x, y=np.array([0, 1])), image_size=50).x.shape[2:] == (50, 50)


def test_features_have_no_image_size(tmp_path: Path) -> None:
    path = npz(tmp_path, x=np.zeros((2, 2)), y=np.array([0, 1]))
    assert "features, not images" in refusal(lambda: read(path, image_size=32))


def test_labels_of_one_column_are_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", x=np.ones((3, 2)), y=np.array([[0], [1], [-1]]))
    assert read(tmp_path / "f.npz").y.tolist() == [0, 1, -1]


def test_names_that_cannot_be_written_are_refused_at_once(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", x=np.ones((2, 2)), y=np.array(["cat", "\udc80"]))
    assert "written as UTF-8" in refusal(lambda: find(str(tmp_path / "f.npz")))
