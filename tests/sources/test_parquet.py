import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from found import names, tensor
from saas_ssl.sources.finding import find
from saas_ssl.sources.reading import read, read_source
from samples import encoded, hugging_face, plain, refusal, write, write_hugging_face


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
