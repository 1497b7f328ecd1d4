import os
from collections.abc import Callable
from pathlib import Path

import pytest

from found import names
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.sources.finding import find
from saas_ssl.sources.reading import read, read_source
from samples import encoded, hugging_face, plain, write, write_plain


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
