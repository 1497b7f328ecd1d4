from pathlib import Path

import pytest
import torch

from found import given, names, tensor
from saas_ssl.sources.finding import find
from saas_ssl.sources.reading import read, read_source
from saas_ssl.sources.source import Source
from samples import refusal, write, write_plain


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


def test_ids_must_tell_rows_apart(tmp_path: Path) -> None:
    write(tmp_path / "f.csv", b"id,label,x\na,cat,1\nb,dog,2\na,,3\n")
    message = refusal(lambda: read(tmp_path / "f.csv"))
    assert message == "these ids belong to more than one row: a"


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_the_row_numbers_of_pandas_are_no_feature(name: str, tmp_path: Path) -> None:
    text = f"{name},label,x\n0,cat,1\n1,dog,2\n2,,3\n"
    write(tmp_path / "f.csv", text.encode())
    assert read(tmp_path / "f.csv").x.tolist() == [[1.0], [2.0], [3.0]]


def test_a_path_with_two_spellings_is_one_path(tmp_path: Path) -> None:
    write_plain(tmp_path, {"a.png": 1, "b.png": 2})
    write(tmp_path / "f.csv", b"path,label\na.png,cat\n./a.png,dog\nb.png,dog\n")
    message = refusal(lambda: find(str(tmp_path / "f.csv")))
    assert "line 2" in message
    assert "line 3" in message
