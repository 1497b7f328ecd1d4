import os
from pathlib import Path

import pytest

from found import names
from saas_ssl.sources.finding import find
from saas_ssl.sources.reading import read
from saas_ssl.sources.source import Skipped
from samples import encoded, plain, refusal, write, write_plain


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


def test_a_stray_table_does_not_hide_the_images(tmp_path: Path) -> None:
    write_plain(tmp_path, {"cat/a.png": 1, "dog/b.png": 2, "labels.parquet": 3})
    assert find(str(tmp_path)).ids == ["cat/a.png", "dog/b.png"]
