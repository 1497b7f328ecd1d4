import unicodedata
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from saas_ssl.sources.finding import find
from saas_ssl.sources.reading import read
from samples import encoded, plain, refusal, write, write_plain

Spelling = Literal["NFC", "NFD"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = ["a.png", "b.png", "sub/c.png", "one, two.png"]
    return write_plain(tmp_path / "images", {name: 40 * n for n, name in enumerate(names)})


def labels_by(folder: Path, text: str | bytes) -> dict[str, str | None]:
    path = folder.parent / "labels.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    source = find(str(folder), path)
    return dict(zip(source.ids, source.labels, strict=True))


EXPECTED = {"a.png": "cat", "b.png": "dog", "one, two.png": None, "sub/c.png": None}

GOOD: dict[str, str | bytes] = {
    "plain": "path,label\na.png,cat\nb.png,dog\n",
    "byte-order mark": b"\xef\xbb\xbfpath,label\na.png,cat\nb.png,dog\n",
    "semicolons": "path;label\na.png;cat\nb.png;dog\n",
    "tabs": "path\tlabel\na.png\tcat\nb.png\tdog\n",
    "bars": "path|label\na.png|cat\nb.png|dog\n",
    "semicolons after a mark": b"\xef\xbb\xbfpath;label\r\na.png;cat\r\nb.png;dog\r\n",
    "lines of Windows": "path,label\r\na.png,cat\r\nb.png,dog\r\n",
    "lines of old Macs": "path,label\ra.png,cat\rb.png,dog\r",
    "no last newline": "path,label\na.png,cat\nb.png,dog",
    "blank lines": "\n\npath,label\n\na.png,cat\n  \n,\nb.png,dog\n\n",
    "blank cells first": ",,\npath,label\na.png,cat\nb.png,dog\n",
    "spaces": " path , label \n a.png , cat \nb.png ,dog\n",
    "capitals": "PATH,Label\na.png,cat\nb.png,dog\n",
    "other columns": "n,label,who,path\n1,cat,me,a.png\n2,dog,,b.png\n",
    "cells too few": "path,label,note\na.png,cat\nb.png,dog\nsub/c.png\n",
    "commas at the end": "path,label\na.png,cat,,\nb.png,dog,,\n",
    "dots and slashes": "path,label\n./a.png,cat\n.//sub/../b.png,dog\n",
    "the same twice": "path,label\na.png,cat\nb.png,dog\na.png,cat\n./a.png,cat\n",
    "empty labels": "path,label\na.png,cat\nb.png,dog\nsub/c.png,\nsub/c.png,  \n",
    "quotes": 'path,label\n"a.png","cat"\n"b.png",dog\n"one, two.png",\n',
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_label_files_as_people_have_them(folder: Path, text: str | bytes) -> None:
    assert labels_by(folder, text) == EXPECTED


def test_names_with_the_delimiter_stand_in_quotes(folder: Path) -> None:
    found = labels_by(folder, 'path,label\n"one, two.png","cat, ""fat"""\n')
    assert found["one, two.png"] == 'cat, "fat"'


def test_paths_may_have_the_slashes_of_windows(folder: Path) -> None:
    assert labels_by(folder, "path,label\nsub\\c.png,cat\n.\\a.png,dog\n") == {
        "a.png": "dog",
        "b.png": None,
        "one, two.png": None,
        "sub/c.png": "cat",
    }


def test_paths_may_be_absolute(folder: Path) -> None:
    found = labels_by(folder, f"path,label\n{folder / 'sub' / 'c.png'},cat\n")
    assert found["sub/c.png"] == "cat"


@pytest.mark.parametrize(("on_disk", "in_file"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_accents_may_be_split_from_their_letters(
    tmp_path: Path, on_disk: Spelling, in_file: Spelling
) -> None:
    name = unicodedata.normalize(on_disk, "é.png")
    write_plain(tmp_path / "images", {name: 1, "b.png": 2})
    found = labels_by(
        tmp_path / "images", f"path,label\n{unicodedata.normalize(in_file, 'é.png')},cat\n"
    )
    assert found == {name: "cat", "b.png": None}


def test_the_label_file_may_lie_among_the_images(folder: Path) -> None:
    path = write(folder / "labels.csv", b"path,label\na.png,cat\nb.png,dog\n")
    write(folder / "notes.txt", b"hello")
    source = find(str(folder), path)
    assert [row.id for row in source.skipped] == ["notes.txt"]


def test_subfolders_are_no_classes_beside_a_label_file(folder: Path) -> None:
    data = read(folder, _write(folder, "path,label\na.png,cat\nb.png,dog\n"))
    assert data.classes == ["cat", "dog"]
    assert data.y.tolist() == [0, 1, -1, -1]


def test_a_label_of_an_image_that_is_skipped_is_no_mistake(folder: Path) -> None:
    write(folder / "broken.png", b"")
    write(folder / "film.avi", b"")
    text = "path,label\na.png,cat\nb.png,dog\nbroken.png,cat\nfilm.avi,dog\n"
    with pytest.warns(UserWarning, match="2 files skipped"):
        data = read(folder, _write(folder, text))
    assert data.ids == ["a.png", "b.png", "one, two.png", "sub/c.png"]
    assert data.y.tolist() == [0, 1, -1, -1]


def _write(folder: Path, text: str) -> Path:
    return write(folder.parent / "labels.csv", text.encode())


BAD: dict[str, tuple[str | bytes, list[str]]] = {
    "unknown path": (
        "path,label\na.png,cat\nz.png,dog\nb.png,dog\ny.png,\n",
        ["images that are not below", "line 3 (z.png), line 5 (y.png)", "relative to"],
    ),
    "many unknown paths": (
        "path,label\n" + "".join(f"{n}.png,cat\n" for n in range(9)),
        ["line 2 (0.png)", "line 6 (4.png) and 4 more"],
    ),
    "unknown path of two lines": (
        'path,label\n"z\n.png",cat\n',
        ["line 3 (z .png)"],
    ),
    "path above the folder": ("path,label\n../images/a.png,cat\n", ["line 2 (../images/a.png)"]),
    "the folder itself": ("path,label\n.,cat\n", ["line 2 (.)"]),
    "absolute path elsewhere": ("path,label\n/nowhere/a.png,cat\n", ["line 2 (/nowhere/a.png)"]),
    "two labels": (
        "path,label\na.png,cat\nb.png,dog\na.png,dog\n",
        ["a.png", "'cat' in line 2", "'dog' in line 4"],
    ),
    "two labels by two spellings": (
        "path,label\na.png,cat\n./a.png,dog\n",
        ["a.png", "'cat' in line 2", "'dog' in line 3"],
    ),
    "a label and none": (
        "path,label\na.png,cat\na.png,\n",
        ["a.png", "'cat' in line 2", "'unlabelled' in line 3"],
    ),
    "no label column": ("path,class\na.png,cat\n", ["no column 'label'", "'path', 'class'"]),
    "no path column": ("file,label\na.png,cat\n", ["no column 'path'", "'file', 'label'"]),
    "neither column": ("a.png,cat\nb.png,dog\n", ["no column 'path' and no column 'label'"]),
    "a column twice": ("path,label,label\na.png,cat,dog\n", ["more than one column 'label'"]),
    "a column twice by its case": (
        "path,label,Label\na.png,cat,dog\n",
        ["more than one column 'label'"],
    ),
    "Latin-1": (
        "path,label\na.png,cat\nb.png,Bär\n".encode("latin1"),
        ["line 3", "not UTF-8", "save the file as CSV in UTF-8"],
    ),
    "Latin-1 at the start of a line": (
        "path,label\na.png,cat\nä.png,cat\n".encode("latin1"),
        ["line 3", "not UTF-8"],
    ),
    "Latin-1 in the header": ("path,label,Größe\n".encode("latin1"), ["line 1", "not UTF-8"]),
    "UTF-16": ("path,label\na.png,cat\n".encode("utf-16"), ["UTF-16", "save it as CSV in UTF-8"]),
    "UTF-16 without a mark": ("path,label\n".encode("utf-16-le"), ["no column 'path'"]),
    "empty": ("", ["is empty", "names its columns"]),
    "only a mark": (b"\xef\xbb\xbf", ["is empty"]),
    "only blank lines": ("\n  \n\r\n", ["is empty"]),
    "only delimiters": (",,\n,,\n", ["is empty"]),
    "only the header": ("path,label\n", ["no rows below its first line"]),
    "only blank rows": ("path,label\n,\n\n", ["no rows below its first line"]),
    "too many cells": (
        "path,label\na.png,cat\none, two.png,dog\n",
        ["line 3", "3 values but 2 columns", "quotes"],
    ),
    "a quote that does not end": (
        'path,label\na.png,cat\n"b.png,dog\nsub/c.png,cat\n',
        ["line 3", 'a quotation mark (") is opened but never closed'],
    ),
    "text after a quote": ('path,label\n"a".png,cat\n', ["line 2", "expected after"]),
    "no path": ("path,label\na.png,cat\n,dog\n", ["line 3", "a label but no path"]),
    "an endless cell": ("path,label\na.png," + "x" * 140_000, ["line 2", "field limit"]),
}


@pytest.mark.parametrize(("text", "words"), BAD.values(), ids=BAD)
def test_a_bad_label_file_is_refused_with_its_lines(
    folder: Path, text: str | bytes, words: list[str]
) -> None:
    message = refusal(lambda: labels_by(folder, text))
    assert str(folder.parent / "labels.csv") in message
    for word in words:
        assert word in message


def test_a_line_is_counted_where_the_file_breaks_it(folder: Path) -> None:
    text = 'path,label,note\na.png,cat,"two\nlines"\nz.png,dog,\n'
    assert "line 4 (z.png)" in refusal(lambda: labels_by(folder, text))


def test_a_missing_label_file_is_named(folder: Path) -> None:
    write(folder / "notes.txt", b"")
    missing = folder / "none.csv"
    assert f"{missing} does not exist" in refusal(lambda: find(str(folder), missing))


def test_a_folder_is_no_label_file(folder: Path) -> None:
    message = refusal(lambda: find(str(folder), folder / "sub"))
    assert str(folder / "sub") in message


def test_a_dangling_link_beside_a_label_file_is_skipped(folder: Path) -> None:
    (folder / "gone.txt").symlink_to(folder / "nowhere")
    (folder / "gone.png").symlink_to(folder / "nowhere")
    source = find(str(folder), _write(folder, "path,label\na.png,cat\n"))
    assert {row.id for row in source.skipped} == {"gone.txt", "gone.png"}


@pytest.mark.parametrize("spec", ["{folder}/a.png", "{folder}/none"])
def test_a_label_file_belongs_to_data(folder: Path, spec: str) -> None:
    path = _write(folder, "path,label\na.png,cat\n")
    assert spec.format(folder=folder) in refusal(lambda: find(spec.format(folder=folder), path))


def test_a_label_file_gives_any_data_their_labels(tmp_path: Path) -> None:
    """By the ids of the rows; what it does not name has none, whatever the data say."""
    x = np.zeros((4, 3))
    np.savez(tmp_path / "x.npz", x=x, y=np.array(["dog", "cat", "", "dog"]), ids=list("abcd"))
    path = tmp_path / "labels.csv"
    path.write_text("id,label,source\nc,cat,given\na,owl,reviewed\nd,,Reviewed\n")
    source = find(str(tmp_path / "x.npz"), path)
    assert source.labels == ["owl", None, "cat", None]
    assert source.classes == ["cat", "owl"]  # those of the data first
    assert source.reviewed == {0}  # d has no label at all
    path.write_text("id,label\na,cat\nx,dog\n")
    message = refusal(lambda: find(str(tmp_path / "x.npz"), path))
    assert message == f"{path} names rows that are not in the data: line 3 (x)"
    path.write_text("id,label\na,cat\na,dog\n")
    assert "line 2" in refusal(lambda: find(str(tmp_path / "x.npz"), path))
    path.write_text("name,label\na,cat\n")
    assert "has no column 'path'" in refusal(lambda: find(str(tmp_path / "x.npz"), path))


def test_which_labels_a_review_gave_is_known(folder: Path) -> None:
    text = "path,label,source\na.png,cat,given\nsub/c.png,dog,Reviewed\none, two.png,cat,inferred\n"
    path = _write(folder, text.replace("one, two.png", '"one, two.png"'))
    assert find(str(folder), path).reviewed == {3}
    assert read(folder, path).y.tolist() == [0, -1, 0, 1]
    assert find(str(folder), _write(folder, "path,label\na.png,cat\n")).reviewed == frozenset()


def test_a_folder_called_digits_takes_a_label_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "digits" / "d.png", encoded(plain(1)))
    monkeypatch.chdir(folder)
    assert find("digits", _write(folder, "path,label\nd.png,4\n")).labels == ["4"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("path,label\na.png,cat\nb.png,cat\n", "every label is 'cat'"),
        ("path,label\na.png,\n", "no row has a label"),
    ],
)
def test_labels_that_teach_nothing_are_refused(folder: Path, text: str, words: str) -> None:
    assert words in refusal(lambda: read(folder, _write(folder, text)))
