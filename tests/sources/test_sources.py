import gzip
import io
import json
import os
import pickle
import struct
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from pyarrow import parquet
from scipy.io import savemat
from torch import Tensor

from saas_ssl.algorithm.partially_labelled import SET_ASIDE, UNLABELLED, PartiallyLabelled
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.data.splits import hold_out, keep_labels, split_validation
from saas_ssl.images.decoding import in_chunks
from saas_ssl.images.pictures import as_picture
from saas_ssl.images.pixels import Encoded, only_bombs_noticed
from saas_ssl.sources.digits import read_digits
from saas_ssl.sources.finding import find
from saas_ssl.sources.reading import read, read_source
from saas_ssl.sources.source import Skipped, Source
from samples import (
    cifar_binary,
    cifar_files,
    cifar_pickle,
    encoded,
    idx,
    noise,
    picture,
    plain,
    refusal,
    tar_gz,
    turned,
    write,
    write_hugging_face,
    write_idx,
    write_plain,
    write_svhn,
)


def given(source: Source) -> dict[str, str | None]:
    return dict(zip(source.ids, source.labels, strict=True))


def tensor(source: Source) -> Tensor:
    assert isinstance(source.rows, Tensor)
    return source.rows


def names(data: PartiallyLabelled) -> list[str | None]:
    return [None if k == UNLABELLED else data.classes[k] for k in data.y.tolist()]


# Folders


def test_subfolders_are_classes_and_the_rest_is_unlabelled(tmp_path: Path) -> None:
    places = {
        "cat/1.png": "cat",
        "cat/deep/deeper/2.JPG": "cat",
        "dog/3.png": "dog",
        "dog/unlabeled/4.png": "dog",
        "top.png": None,
        "unlabeled/5.png": None,
        "unlabelled/6.png": None,
        "unlabelled/cat/7.png": None,
        "Unlabeled/8.png": None,
    }
    write_plain(tmp_path, {place: 10 * n for n, place in enumerate(places)})
    data = read(tmp_path)
    assert dict(zip(data.ids, names(data), strict=True)) == places
    assert data.classes == ["cat", "dog"]
    values = dict(zip(data.ids, data.x[:, 0, 0, 0].tolist(), strict=True))
    assert values == {place: 10 * n for n, place in enumerate(places)}


def test_rows_come_in_the_same_order_every_time(tmp_path: Path) -> None:
    write_plain(tmp_path, {f"{'ba'[n % 2]}/{n * 7 % 10}.png": n for n in range(10)})
    ids = list(find(str(tmp_path)).ids)
    assert ids == sorted(ids)


def test_classes_that_are_numbers_are_sorted_by_value(tmp_path: Path) -> None:
    write_plain(tmp_path, {f"{k}/x.png": k for k in (10, 9, 2)})
    assert find(str(tmp_path)).classes == ["2", "9", "10"]


def test_hidden_files_and_folders_are_not_seen(tmp_path: Path) -> None:
    write_plain(tmp_path, {"a/1.png": 1, "a/.2.png": 2, ".git/3.png": 3, "a/.x/4.png": 4})
    source = find(str(tmp_path))
    assert source.ids == ["a/1.png"]
    assert source.skipped == []


def test_files_that_are_no_images_are_skipped_with_a_reason(tmp_path: Path) -> None:
    write_plain(tmp_path, {"a/1.png": 1, "b/2.png": 2})
    write(tmp_path / "a" / "notes.txt", b"hello")
    write(tmp_path / "b" / "raw", b"")
    (tmp_path / "b" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    os.mkfifo(tmp_path / "b" / "pipe.png")  # opening it would wait forever
    assert find(str(tmp_path)).skipped == [
        Skipped("a/notes.txt", "not an image of a known kind, by its name"),
        Skipped("b/gone.png", "not a file that can be opened"),
        Skipped("b/pipe.png", "not a file that can be opened"),
        Skipped("b/raw", "not an image of a known kind, by its name"),
    ]


def test_a_name_that_is_not_utf8_is_skipped(tmp_path: Path) -> None:
    write_plain(tmp_path, {"a/1.png": 1, "b/2.png": 2})
    try:
        write(Path(os.fsdecode(bytes(tmp_path / "a") + b"/\xff.png")), encoded(plain(3)))
    except OSError:
        pytest.skip("this file system knows only UTF-8")
    source = find(str(tmp_path))
    assert source.ids == ["a/1.png", "b/2.png"]
    assert [row.reason for row in source.skipped] == ["its name is not UTF-8"]
    with pytest.warns(UserWarning, match="its name is not UTF-8"):
        assert len(read(tmp_path).ids) == 2


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    elsewhere = write_plain(tmp_path / "elsewhere", {"1.png": 1, "2.png": 2})
    folder = write_plain(tmp_path / "images", {"dog/3.png": 3})
    (folder / "cat").symlink_to(elsewhere)
    (folder / "dog" / "loop").symlink_to(folder)
    (elsewhere / "loop").symlink_to(elsewhere)
    (folder / "zebra").symlink_to(elsewhere)  # the same files under another name
    ids = ["cat/1.png", "cat/2.png", "dog/3.png", "zebra/1.png", "zebra/2.png"]
    assert find(str(folder)).ids == ids


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a" / "notes.txt", b"")
    assert "there are no images below" in refusal(lambda: find(str(tmp_path)))


def test_a_folder_without_labels_is_refused(tmp_path: Path) -> None:
    write_plain(tmp_path, {"1.png": 1, "unlabeled/2.png": 2})
    assert "no row has a label" in refusal(lambda: read(tmp_path))


def test_a_folder_of_one_class_is_refused(tmp_path: Path) -> None:
    write_plain(tmp_path, {"1.png": 1, "cat/2.png": 2})
    assert "every label is 'cat'" in refusal(lambda: read(tmp_path))


def test_images_of_which_none_can_be_used_are_refused(tmp_path: Path) -> None:
    for name in ("a/1.png", "a/2.png", "b/3.png"):
        write(tmp_path / name, b"")
    message = refusal(lambda: read(tmp_path))
    assert message == "none of the 3 images can be used: the file is empty"


def test_an_image_size_is_kept_to(tmp_path: Path) -> None:
    write_plain(tmp_path, {"a/1.png": 1, "b/2.png": 2})
    assert read(tmp_path, image_size=20).x.shape == (2, 1, 20, 20)


# CSV files


def csv_source(tmp_path: Path, text: str) -> Source:
    return find(str(write(tmp_path / "table.csv", text.encode())))


def test_a_csv_file_of_paths(tmp_path: Path) -> None:
    write_plain(tmp_path, {"a.png": 10, "sub/b.png": 20, "c.png": 30})
    absolute = tmp_path / "c.png"
    write(tmp_path / "t.csv", f"label,path\ncat,a.png\n,sub/b.png\ndog,{absolute}\n".encode())
    data = read(tmp_path / "t.csv")
    assert data.ids == ["a.png", "sub/b.png", str(absolute)]
    assert names(data) == ["cat", None, "dog"]
    assert data.x[:, 0, 0, 0].tolist() == [10, 20, 30]


def test_a_csv_file_of_paths_without_labels(tmp_path: Path) -> None:
    write_plain(tmp_path, {"a.png": 1})
    assert csv_source(tmp_path, "path\na.png\n").labels == [None]


def test_paths_of_a_csv_file_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    write_plain(tmp_path, {"a.png": 1, "sub/b.png": 2})
    endless = "x" * 5000
    text = f"path,label\na.png,1\nz.png,2\nsub,1\n{endless},1\n"
    message = refusal(lambda: csv_source(tmp_path, text))
    assert "files that do not exist: line 3 (z.png), line 4 (sub), line 5 (xxx" in message
    assert len(message) < 1000


def test_a_csv_file_of_features(tmp_path: Path) -> None:
    data = read(write(tmp_path / "f.csv", b"x0,x1,label\n1,2.5,a\n-3,4e2,b\n5,6,\n"))
    assert data.x.dtype == torch.float32
    assert data.x.tolist() == [[1, 2.5], [-3, 400], [5, 6]]
    assert names(data) == ["a", "b", None]
    assert data.ids == ["0", "1", "2"]


def test_features_may_have_any_names_and_ids(tmp_path: Path) -> None:
    source = csv_source(tmp_path, "ID;weight;Label;height\np1;1;a;2\np2;3;b;4\n")
    assert given(source) == {"p1": "a", "p2": "b"}
    assert tensor(source).tolist() == [[1, 2], [3, 4]]


def test_tables_may_be_called_tsv_or_txt(tmp_path: Path) -> None:
    for name in ("a.tsv", "b.TXT"):
        path = write(tmp_path / name, b"x0\tlabel\n1\ta\n2\tb\n")
        assert tensor(find(str(path))).tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x0,x1,label\n1,2,a\n1,two,b\n", "line 3: 'two' in column 'x1' is not a number"),
        ("x0,x1,label\n1,,a\n", "line 2: '' in column 'x1' is not a number"),
        ("x0,label\n1,a,5\n", "line 2: there are 3 values but 2 columns"),
        ("label,id\na,1\n", "neither a column path nor columns of numbers"),
        ("x0,label\n", "no rows below its first line"),
    ],
)
def test_bad_tables_of_features_are_refused(tmp_path: Path, text: str, words: str) -> None:
    assert words in refusal(lambda: csv_source(tmp_path, text))


@pytest.mark.parametrize("number", ["nan", "inf", "-1e999"])
def test_features_that_are_no_finite_numbers_are_refused(tmp_path: Path, number: str) -> None:
    source = csv_source(tmp_path, f"x0,label\n1,a\n{number},b\n")
    assert "row 1 (1) of x has NaN or infinite values" in refusal(lambda: read_source(source))


# npz files


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


# Parquet


def hugging_face(path: Path, **options: Any) -> Path:
    images = [encoded(plain(value)) for value in (10, 20, 30, 40)]
    return write_hugging_face(path, images, [1, 0, None, -1], ["dog", "cat"], **options)


@pytest.mark.parametrize("column", ["image", "img"])
def test_parquet_as_hugging_face_writes_it(tmp_path: Path, column: str) -> None:
    data = read(hugging_face(tmp_path / "a.parquet", column=column))
    assert data.classes == ["dog", "cat"]  # in the order of the metadata
    assert names(data) == ["cat", "dog", None, None]
    assert data.ids == ["0", "1", "2", "3"]
    assert data.x[:, 0, 0, 0].tolist() == [10, 20, 30, 40]


def test_parquet_rows_are_called_by_their_paths_where_these_differ(tmp_path: Path) -> None:
    paths = ["a.png", "b.png", "c.png", "d.png"]
    assert find(str(hugging_face(tmp_path / "a.parquet", paths=paths))).ids == paths
    for useless in (["a.png"] * 4, [*paths[:3], None]):
        source = find(str(hugging_face(tmp_path / "a.parquet", paths=useless)))
        assert source.ids == ["0", "1", "2", "3"]


def test_a_null_image_is_skipped(tmp_path: Path) -> None:
    images = [encoded(plain(10)), None, encoded(plain(30))]
    path = write_hugging_face(tmp_path / "a.parquet", images, [0, 1, 1], ["a", "b"])
    with pytest.warns(UserWarning, match="1 file skipped; the first is 1: the file is empty"):
        data = read(path)
    assert data.ids == ["0", "2"]
    assert names(data) == ["a", "b"]
    assert data.x[:, 0, 0, 0].tolist() == [10, 30]


def write_table(path: Path, **columns: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), path)
    return str(path)


def test_parquet_of_bytes_with_ids_and_names(tmp_path: Path) -> None:
    images = [encoded(plain(10)), encoded(plain(20)), encoded(plain(30))]
    path = write_table(
        tmp_path / "a.parquet", image=images, label=["cat", "", "dog"], id=["p", "q", "r"]
    )
    data = read(path)
    assert data.ids == ["p", "q", "r"]
    assert names(data) == ["cat", None, "dog"]
    assert data.x[:, 0, 0, 0].tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([0, 1, None], ["0", "1", None]),
        ([0.0, 1.0, float("nan")], ["0", "1", None]),
        (["a", " ", None], ["a", None, None]),
        ([10, 9, -1], ["10", "9", None]),
    ],
)
def test_labels_of_parquet(tmp_path: Path, labels: list[Any], expected: list[str | None]) -> None:
    path = write_table(tmp_path / "a.parquet", x0=[1.0, 2.0, 3.0], label=labels)
    assert find(path).labels == expected


def test_floating_point_labels_take_the_names_of_the_metadata(tmp_path: Path) -> None:
    # pandas makes whole numbers floating-point ones where some are missing.
    info = {"info": {"features": {"label": {"names": ["dog", "cat"]}}}}
    table = pa.table({"x0": [1.0, 2.0, 3.0], "label": [1.0, 0.0, float("nan")]})
    table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert find(str(tmp_path / "a.parquet")).labels == ["cat", "dog", None]


def test_parquet_of_features(tmp_path: Path) -> None:
    path = write_table(
        tmp_path / "a.parquet", weight=[1.5, 2.5], note=["x", "y"], n=[3, 4], label=["a", "b"]
    )
    assert tensor(find(path)).tolist() == [[1.5, 3], [2.5, 4]]


def test_a_missing_feature_is_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.parquet", x0=[1.0, None], label=["a", "b"])
    assert "row 1 (1) of x has NaN" in refusal(lambda: read(path))


def test_a_folder_of_parquet_files_is_one_source(tmp_path: Path) -> None:
    for n in range(3):
        images = [encoded(plain(10 * n)), encoded(plain(10 * n + 1))]
        write_hugging_face(tmp_path / f"train-0000{n}.parquet", images, [0, 1], ["a", "b"])
    for spec in (tmp_path, tmp_path / "train*.parquet"):
        data = read(spec)
        assert data.x[:, 0, 0, 0].tolist() == [0, 1, 10, 11, 20, 21]
        assert data.y.tolist() == [0, 1] * 3


def test_a_folder_of_two_parts_is_refused(tmp_path: Path) -> None:
    for part in ("train", "test"):
        hugging_face(tmp_path / f"{part}-00000-of-00001.parquet")
    message = refusal(lambda: find(str(tmp_path)))
    assert "the parts test, train: choose one" in message
    assert len(find(f"{tmp_path}/train*.parquet").ids) == 4


def test_parquet_files_of_other_columns_are_refused(tmp_path: Path) -> None:
    hugging_face(tmp_path / "a.parquet")
    hugging_face(tmp_path / "b.parquet", column="img")
    message = refusal(lambda: find(str(tmp_path)))
    assert "b.parquet has other columns than" in message


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"label": ["a", "b"], "text": ["x", "y"]},
            "neither a column image nor columns of numbers",
        ),
        ({"label": ["a", "b"], "image": ["x.png", "y.png"]}, "must hold the bytes of images"),
        ({"label": ["a", "b"], "image": [{"path": "x"}] * 2}, "must hold the bytes of images"),
    ],
)
def test_parquet_without_data_is_refused(
    tmp_path: Path, columns: dict[str, Any], words: str
) -> None:
    assert words in refusal(lambda: find(write_table(tmp_path / "a.parquet", **columns)))


def test_labels_beyond_the_names_are_refused(tmp_path: Path) -> None:
    path = write_hugging_face(tmp_path / "a.parquet", [b"", b""], [0, 2], ["a", "b"])
    assert "has the label 2 but only 2 class names" in refusal(lambda: find(str(path)))


def test_broken_parquet_files_are_refused(tmp_path: Path) -> None:
    whole = hugging_face(tmp_path / "whole.parquet").read_bytes()
    for data in (b"", b"text", whole[:-20], whole[: len(whole) // 2]):
        path = write(tmp_path / "a.parquet", data)
        message = refusal(lambda path=path: find(str(path)))  # type: ignore[misc]
        assert "a.parquet cannot be read as parquet: " in message


def test_parquet_that_breaks_off_among_its_images_is_refused(tmp_path: Path) -> None:
    path = hugging_face(tmp_path / "a.parquet")
    data = bytearray(path.read_bytes())
    data[4:60] = bytes(56)  # the first page of images; the table of contents is at the end
    source = find(str(write(path, bytes(data))))
    assert "a.parquet cannot be read as parquet: " in refusal(lambda: read_source(source))


# idx


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


# CIFAR-10

FOLDER = {"py": "cifar-10-batches-py", "bin": "cifar-10-batches-bin"}
ARCHIVE = {"py": "cifar-10-python.tar.gz", "bin": "cifar-10-binary.tar.gz"}


@pytest.mark.parametrize("version", ["py", "bin"])
@pytest.mark.parametrize("place", ["archive", "beside the archive", "folder", "folder above"])
def test_cifar10_wherever_it_is(tmp_path: Path, version: str, place: str) -> None:
    files, pixels, labels = cifar_files(version)
    if "archive" in place:
        packed = tar_gz({f"{FOLDER[version]}/{name}": data for name, data in files.items()})
        write(tmp_path / ARCHIVE[version], packed)
        spec = tmp_path / ARCHIVE[version] if place == "archive" else tmp_path
    else:
        for name, data in files.items():
            write(tmp_path / FOLDER[version] / name, data)
        spec = tmp_path / FOLDER[version] if place == "folder" else tmp_path
    source = find(f"cifar10:{spec}")
    assert (tensor(source).numpy() == pixels.reshape(-1, 3, 32, 32)).all()
    assert source.classes[:3] == ["airplane", "automobile", "bird"]
    assert source.labels == [source.classes[k] for k in labels]
    assert find(f"cifar10:{spec}:test").labels == ["truck", "cat"]
    assert "no part 'extra'" in refusal(lambda: find(f"cifar10:{spec}:extra"))


def test_the_pickles_of_these_tests_are_what_python_2_wrote() -> None:
    loaded = pickle.loads(cifar_pickle(noise(2, 3072), [3, 4]), encoding="bytes")  # noqa: S301
    assert (loaded[b"data"] == noise(2, 3072)).all()
    assert loaded[b"labels"] == [3, 4]


def with_first_batch(tmp_path: Path, data: bytes, version: str = "py") -> str:
    for name, batch in cifar_files(version)[0].items():
        write(tmp_path / name, batch)
    write(tmp_path / ("data_batch_1" if version == "py" else "data_batch_1.bin"), data)
    return f"cifar10:{tmp_path}"


def malicious(marker: Path) -> dict[str, bytes]:
    """Pickles that leave a file where they are loaded as pickles."""
    command, path = f"touch '{marker}'".encode(), str(marker).encode()

    def text(value: bytes) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value

    opening = text(f"__import__('pathlib').Path({str(marker)!r}).touch()".encode())
    return {
        "os.system": b"\x80\x02cos\nsystem\n" + text(command) + b"\x85R.",
        "posix.system": b"\x80\x02cposix\nsystem\n" + text(command) + b"\x85R.",
        "builtins.eval": b"\x80\x02cbuiltins\neval\n" + opening + b"\x85R.",
        "__builtin__.eval": b"\x80\x02c__builtin__\neval\n" + opening + b"\x85R.",
        "in the data": cifar_pickle(noise(1, 3072), [1]).replace(
            b"cnumpy\ndtype\n", b"cbuiltins\neval\n" + opening + b"\x85R0cnumpy\ndtype\n"
        ),
        "by its old opcode": b'(S"' + command + b'"\nios\nsystem\n.',
        "by a dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0fndarray.__new__\x93" + b").",
        "of numpy itself": b"\x80\x02cnumpy\nsave\n" + text(path) + b"K\x01\x86R.",
    }


@pytest.mark.parametrize("name", malicious(Path()))
def test_a_pickle_that_would_run_something_is_refused_and_not_run(
    tmp_path: Path, name: str
) -> None:
    marker = tmp_path / "was here"
    spec = with_first_batch(tmp_path, malicious(marker)[name])
    message = refusal(lambda: find(spec))
    assert "data_batch_1 is not a batch of CIFAR-10's python version" in message
    assert not list(tmp_path.glob("was here*"))


def test_the_malicious_pickles_of_these_tests_do_run_elsewhere(tmp_path: Path) -> None:
    for name in ("os.system", "builtins.eval", "by its old opcode"):
        marker = tmp_path / name
        pickle.loads(malicious(marker)[name])  # noqa: S301
        assert marker.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text",
        b"\x80\x02}.",
        b"\x80\x02K\x01.",
        cifar_pickle(noise(2, 3072), [1, 2])[:-5000],
        cifar_pickle(noise(2, 3071), [1, 2]),
    ],
    ids=["empty", "text", "no data", "number", "cut off", "narrow"],
)
def test_pickles_that_are_no_batch_are_refused(tmp_path: Path, data: bytes) -> None:
    message = refusal(lambda: find(with_first_batch(tmp_path, data)))
    assert "data_batch_1 is not a batch of CIFAR-10's python version" in message


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02]r" + struct.pack("<I", 1 << 24) + b".",  # a memo of so many entries
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 28) + b"x.",  # an array of so many bytes
    ],
    ids=["memo", "array"],
)
def test_a_small_pickle_cannot_ask_for_much_memory(tmp_path: Path, data: bytes) -> None:
    spec = with_first_batch(tmp_path, data)
    tracemalloc.start()
    try:
        refusal(lambda: find(spec))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


def test_a_pickle_that_python_warns_of_is_refused_without_a_warning(tmp_path: Path) -> None:
    spec = with_first_batch(tmp_path, rb"S'\]'" + b"\n.")
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        refusal(lambda: find(spec))
    assert noticed == []


@pytest.mark.parametrize("labels", [[1], [1, 2, 3], [1, 10]])
def test_batches_with_other_labels_are_refused(tmp_path: Path, labels: list[int]) -> None:
    spec = with_first_batch(tmp_path, cifar_pickle(noise(2, 3072), labels))
    assert "no label from 0 to 9 for each of its images" in refusal(lambda: find(spec))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (cifar_binary(noise(2, 3072), [1, 2])[:-1], "is cut off: each image takes 3073 bytes"),
        (cifar_binary(noise(2, 3072), [1, 77]), "no label from 0 to 9"),
        (b"", "no label from 0 to 9"),
    ],
    ids=["cut off", "label 77", "empty"],
)
def test_bad_binary_batches_are_refused(tmp_path: Path, data: bytes, words: str) -> None:
    assert words in refusal(lambda: find(with_first_batch(tmp_path, data, "bin")))


def test_archives_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    whole = tar_gz(cifar_files("py")[0])
    for data in (whole[: len(whole) // 2], whole[:-200], b"", b"text"):
        path = write(tmp_path / ARCHIVE["py"], data)
        assert "is not a tar archive, or a broken one" in refusal(
            lambda path=path: find(f"cifar10:{path}")  # type: ignore[misc]
        )


def test_missing_batches_are_named(tmp_path: Path) -> None:
    files = cifar_files("py")[0]
    del files["data_batch_3"]
    write(tmp_path / ARCHIVE["py"], tar_gz(files))
    assert "has only 4 of the 5 CIFAR-10 files" in refusal(lambda: find(f"cifar10:{tmp_path}"))
    (tmp_path / ARCHIVE["py"]).unlink()
    assert "there is no CIFAR-10 in" in refusal(lambda: find(f"cifar10:{tmp_path}"))


def test_members_of_an_archive_are_not_written_to_the_disk(tmp_path: Path) -> None:
    files = {f"../../{name}": data for name, data in cifar_files("bin")[0].items()}
    write(tmp_path / "a" / "b" / ARCHIVE["bin"], tar_gz(files))
    assert len(find(f"cifar10:{tmp_path}/a/b").ids) == 20
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [ARCHIVE["bin"]]


# SVHN


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


# Digits, and what is no source


def test_the_digits_in_their_parts() -> None:
    everything = find("digits")
    parts = [find("digits:train"), find("digits:test")]
    assert [len(source.ids) for source in (everything, *parts)] == [1797, 1347, 450]
    assert sorted([*parts[0].ids, *parts[1].ids], key=int) == list(everything.ids)
    assert {**given(parts[0]), **given(parts[1])} == given(everything)
    assert tensor(everything).shape == (1797, 1, 16, 16)
    assert "no part 'extra'" in refusal(lambda: find("digits:extra"))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("{}/none", "/none does not exist"),
        ("{}/none.csv", "/none.csv does not exist"),
        ("{}/none*.parquet", "/none*.parquet does not exist"),
        ("{}/film.avi", "is no kind of data that is known"),
        ("mnist", "mnist does not exist"),
        ("x" * 5000, "xxx does not exist"),
        ("", "the name of the data is empty"),
        ("idx:", "no idx files of train images"),
    ],
)
def test_what_is_no_source_is_refused(
    tmp_path: Path, spec: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "film.avi", b"film")
    monkeypatch.chdir(tmp_path)
    assert words in refusal(lambda: find(spec.format(tmp_path)))


def test_rows_without_an_image_or_a_label_are_refused() -> None:
    # Broken parquet files have been seen to hold fewer values in one column than in another.
    images: list[Encoded] = [encoded(plain(1))]
    source = Source(["1", "2"], ["a", "b"], ["a", "b"], in_chunks(images))
    assert "there are 2 rows but 1 images" in refusal(lambda: read_source(source))
    assert "there are 2 rows but 1 labels" in refusal(
        lambda: Source(["1", "2"], ["a"], ["a"], in_chunks(images))
    )


# The cache


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return write_plain(tmp_path / "images", {"a/1.png": 10, "a/2.png": 20, "b/3.png": 30})


def values(data: PartiallyLabelled) -> list[int]:
    return data.x[:, 0, 0, 0].tolist()


def change_unnoticed(path: Path, value: int) -> None:
    """Other pixels in a file of the same size and time."""
    stat, data = path.stat(), encoded(plain(value))
    assert len(data) == stat.st_size
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_a_second_read_does_not_decode(images: Path, tmp_path: Path) -> None:
    assert values(read(images, cache=tmp_path / "cache")) == [10, 20, 30]
    change_unnoticed(images / "a" / "2.png", 99)
    assert values(read(images, cache=tmp_path / "cache")) == [10, 20, 30]
    assert values(read(images)) == [10, 99, 30]  # without the cache the change is seen


def test_a_changed_file_is_decoded_again(images: Path, tmp_path: Path) -> None:
    read(images, cache=tmp_path / "cache")
    path = images / "a" / "2.png"
    change_unnoticed(path, 99)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert values(read(images, cache=tmp_path / "cache")) == [10, 99, 30]


def test_a_new_file_and_another_size_are_decoded(images: Path, tmp_path: Path) -> None:
    read(images, cache=tmp_path / "cache")
    assert read(images, image_size=20, cache=tmp_path / "cache").x.shape == (3, 1, 20, 20)
    write_plain(images, {"b/0.png": 77})
    assert values(read(images, cache=tmp_path / "cache")) == [10, 20, 77, 30]


def test_what_was_skipped_is_cached_too(images: Path, tmp_path: Path) -> None:
    write(images / "a" / "1.png", b"")
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"1 file .* a/1.png: the file is empty"):
            data = read(images, cache=tmp_path / "cache")
        assert (data.ids, values(data)) == (["a/2.png", "b/3.png"], [20, 30])


def test_labels_may_change_without_decoding(images: Path, tmp_path: Path) -> None:
    read(images, cache=tmp_path / "cache")
    change_unnoticed(images / "a" / "1.png", 99)
    labels = write(tmp_path / "l.csv", b"path,label\na/1.png,x\nb/3.png,y\n")
    data = read(images, labels, cache=tmp_path / "cache")
    assert (values(data), names(data)) == ([10, 20, 30], ["x", None, "y"])


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "pixels cut off": ("*.pixels", lambda data: data[:-1]),
    "pixels grown": ("*.pixels", lambda data: data + b"x"),
    "no pixels": ("*.pixels", lambda _: b""),
    "record cut off": ("*.json", lambda data: data[:-5]),
    "record empty": ("*.json", lambda _: b""),
    "record a list": ("*.json", lambda _: b"[]"),
    "record without rows": ("*.json", lambda data: data.replace(b"rows", b"lows")),
    "reasons a list": ("*.json", lambda data: data.replace(b'"bad": {}', b'"bad": []')),
    "record not UTF-8": ("*.json", lambda data: b"\xff" + data),
}


@pytest.mark.parametrize(("file", "damage"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_cache_is_made_again(
    images: Path, tmp_path: Path, file: str, damage: Callable[[bytes], bytes]
) -> None:
    read(images, cache=tmp_path / "cache")
    (path,) = (tmp_path / "cache").glob(file)
    path.write_bytes(damage(path.read_bytes()))
    change_unnoticed(images / "a" / "2.png", 99)  # shows that it was decoded
    assert values(read(images, cache=tmp_path / "cache")) == [10, 99, 30]
    change_unnoticed(images / "a" / "2.png", 98)
    assert values(read(images, cache=tmp_path / "cache")) == [10, 99, 30]  # and cached again


def test_an_interrupted_decoding_leaves_nothing(images: Path, tmp_path: Path) -> None:
    def interrupt(_done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_source(find(str(images)), cache=tmp_path / "cache", progress=interrupt)
    assert list((tmp_path / "cache").iterdir()) == []
    assert values(read(images, cache=tmp_path / "cache")) == [10, 20, 30]


def test_the_cache_holds_one_whole_pair_of_files(images: Path, tmp_path: Path) -> None:
    read(images, cache=tmp_path / "cache")
    assert sorted(path.suffix for path in (tmp_path / "cache").iterdir()) == [".json", ".pixels"]


@pytest.mark.parametrize("cached", [True, False])
def test_images_are_mapped_not_loaded(images: Path, tmp_path: Path, cached: bool) -> None:
    cache = tmp_path / "cache" if cached else None
    for _ in range(2):
        data = read(images, cache=cache)
        address = data.x.data_ptr()
        maps = Path("/proc/self/maps")
        if not maps.exists():
            pytest.skip("maps are listed in /proc")
        (line,) = (line for line in maps.read_text().splitlines() if _holds(line, address))
        assert ".pixels" in line or "(deleted)" in line


def _holds(line: str, address: int) -> bool:
    start, end = (int(part, 16) for part in line.split()[0].split("-"))
    return start <= address < end


def test_writing_to_the_images_does_not_change_the_cache(images: Path, tmp_path: Path) -> None:
    read(images, cache=tmp_path / "cache").x.zero_()
    assert values(read(images, cache=tmp_path / "cache")) == [10, 20, 30]


def test_parquet_images_are_cached_too(tmp_path: Path) -> None:
    path = hugging_face(tmp_path / "a.parquet")
    for _ in range(2):
        assert values(read(path, cache=tmp_path / "cache")) == [10, 20, 30, 40]
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_progress_is_told_in_images(tmp_path: Path) -> None:
    write_plain(tmp_path, {f"{'ab'[n % 2]}/{n}.png": n for n in range(150)})
    told = list[int]()
    read_source(find(str(tmp_path)), progress=told.append)
    assert told == [64, 128, 150]


def test_a_form_that_is_given_is_kept_to(tmp_path: Path, images: Path) -> None:
    colour = write(tmp_path / "colour" / "a" / "1.png", encoded(picture(40, 40)))
    write(tmp_path / "colour" / "b" / "2.png", encoded(picture(40, 40)))
    form = read_source(find(str(images))).form
    reading = read_source(find(str(colour.parent.parent)), form=form)
    assert reading.form == form
    assert reading.data.x.shape == (2, 1, 8, 8)


# Keeping some of the labels and some of the rows


def rows_of(data: PartiallyLabelled, y: int) -> int:
    return int((data.y == y).sum())


def test_only_so_many_unlabelled_rows_are_used() -> None:
    digits = read_digits(8)
    kept = keep_labels(digits, 50, generator_at(0, "keep"), unlabelled=300)
    assert (len(kept.labelled_rows), len(kept.unlabelled_rows)) == (50, 300)
    assert rows_of(kept, SET_ASIDE) == len(digits.y) - 350
    assert kept.y[kept.labelled_rows].bincount().tolist() == [5] * 10
    used = digits.y[kept.unlabelled_rows].bincount(minlength=10)
    share = (digits.y.bincount() - 5) * 300 / (len(digits.y) - 50)
    assert (used - share).abs().max() <= 1
    assert (kept.y[kept.labelled_rows] == digits.y[kept.labelled_rows]).all()


def test_the_same_labels_are_kept_whatever_is_set_aside() -> None:
    digits = read_digits(8)
    few = keep_labels(digits, 50, generator_at(0, "keep"), unlabelled=300)
    all_ = keep_labels(digits, 50, generator_at(0, "keep"))
    assert few.labelled_rows.tolist() == all_.labelled_rows.tolist()
    other = keep_labels(digits, 50, generator_at(1, "keep"))
    assert other.labelled_rows.tolist() != all_.labelled_rows.tolist()


def test_all_other_rows_may_be_asked_for_but_no_more() -> None:
    digits = read_digits(8)
    kept = keep_labels(digits, 50, generator_at(0, "keep"), unlabelled=1747)
    assert rows_of(kept, SET_ASIDE) == 0
    for wrong in (0, -1, 1748):
        message = refusal(
            lambda wrong=wrong: keep_labels(  # type: ignore[misc]
                digits, 50, generator_at(0, "keep"), unlabelled=wrong
            )
        )
        assert f"cannot use {wrong} unlabelled rows: there are 1747 besides the 50" in message


def test_rows_set_aside_have_no_label_to_hide() -> None:
    digits = read_digits(8)
    training, validation = split_validation(digits, 0.2, generator_at(0, "validation"))
    assert validation is not None
    aside = training.y == SET_ASIDE
    assert (aside == (validation.y >= 0)).all()
    for split in (keep_labels, hold_out):
        with pytest.raises(ValueError, match="fully labelled data, but 359 rows have no label"):
            split(training, 20, generator_at(0, "keep"))


def test_ids_must_tell_rows_apart(tmp_path: Path) -> None:
    write(tmp_path / "f.csv", b"id,label,x\na,cat,1\nb,dog,2\na,,3\n")
    message = refusal(lambda: read(tmp_path / "f.csv"))
    assert message == "these ids belong to more than one row: a"


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_the_row_numbers_of_pandas_are_no_feature(name: str, tmp_path: Path) -> None:
    text = f"{name},label,x\n0,cat,1\n1,dog,2\n2,,3\n"
    write(tmp_path / "f.csv", text.encode())
    assert read(tmp_path / "f.csv").x.tolist() == [[1.0], [2.0], [3.0]]


def test_labels_of_one_column_are_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", x=np.ones((3, 2)), y=np.array([[0], [1], [-1]]))
    assert read(tmp_path / "f.npz").y.tolist() == [0, 1, -1]


def test_a_path_with_two_spellings_is_one_path(tmp_path: Path) -> None:
    write_plain(tmp_path, {"a.png": 1, "b.png": 2})
    write(tmp_path / "f.csv", b"path,label\na.png,cat\n./a.png,dog\nb.png,dog\n")
    message = refusal(lambda: find(str(tmp_path / "f.csv")))
    assert "line 2" in message
    assert "line 3" in message


def test_a_stray_table_does_not_hide_the_images(tmp_path: Path) -> None:
    write_plain(tmp_path, {"cat/a.png": 1, "dog/b.png": 2, "labels.parquet": 3})
    assert find(str(tmp_path)).ids == ["cat/a.png", "dog/b.png"]


def test_names_that_cannot_be_written_are_refused_at_once(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", x=np.ones((2, 2)), y=np.array(["cat", "\udc80"]))
    assert "written as UTF-8" in refusal(lambda: find(str(tmp_path / "f.npz")))


def test_the_image_of_any_row_can_be_had_by_its_number(tmp_path: Path) -> None:
    """Whatever it is stored in, and in any order: one grey value tells which row it is."""
    values = {f"{n}.png": 20 * n for n in range(7)}
    folder = write_plain(tmp_path / "photos", values)
    (tmp_path / "photos.csv").write_text("path\n" + "".join(f"photos/{n}.png\n" for n in range(7)))
    pixels = np.array([np.full((8, 8), 20 * n, np.uint8) for n in range(7)])
    np.savez(tmp_path / "x.npz", x=pixels)
    images = [encoded(plain(20 * n)) for n in range(7)]
    for at, part in enumerate((images[:5], images[5:])):
        file = write_hugging_face(tmp_path / "tables" / f"{at}.parquet", part, [0] * len(part))
        parquet.write_table(parquet.read_table(file), file, row_group_size=2)
    write_idx(tmp_path / "idx", pixels, np.zeros(7, np.uint8))
    specs = [folder, tmp_path / "photos.csv", tmp_path / "x.npz", tmp_path / "tables"]
    for spec in [*map(str, specs), f"idx:{tmp_path / 'idx'}"]:
        source = find(spec)
        for row in (6, 0, 3, 5, 4, 1, 2, 6):
            with only_bombs_noticed():
                data, kind = as_picture(source.image(row), 96)
            shown = Image.open(io.BytesIO(data))
            assert (shown.size, kind, shown.getextrema()) == ((8, 8), "image/png", (20 * row,) * 2)


def test_what_is_skipped_does_not_shift_the_images(tmp_path: Path) -> None:
    folder = write_plain(tmp_path / "photos", {"a/1.png": 10, "b/2.png": 20, "b/4.png": 40})
    write(folder / "b" / "3.png", b"broken")
    reading = read_source(find(str(folder)))
    assert reading.image is not None
    for row, id_ in enumerate(reading.data.ids):
        assert reading.image(row) == str(folder / id_)
    assert reading.reviewed.tolist() == [False] * 3


def test_pictures_are_small_and_whole(tmp_path: Path) -> None:
    """No side is longer than asked for, nothing is cut off, and 16 bits become 8."""
    wide = encoded(picture(100, 400), "JPEG", exif=turned(6))
    deep = encoded(Image.fromarray(np.full((80, 80), 4095 * 16, np.uint16)))
    clear = encoded(Image.new("RGBA", (100, 100), (0, 0, 0, 0)))
    with only_bombs_noticed():
        data, kind = as_picture(wide, 96)
        assert (Image.open(io.BytesIO(data)).size, kind) == ((24, 96), "image/jpeg")
        grey = Image.open(io.BytesIO(as_picture(deep, 96, white=65535)[0]))
        assert grey.getpixel((40, 40)) == pytest.approx(255, abs=2)
        white = Image.open(io.BytesIO(as_picture(clear, 96)[0]))
        assert white.convert("L").getextrema() == (255, 255)
