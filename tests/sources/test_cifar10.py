import pickle
import struct
import tracemalloc
import warnings
from pathlib import Path

import pytest

from found import tensor
from saas_ssl.sources.finding import find
from samples import cifar_binary, cifar_files, cifar_pickle, noise, refusal, tar_gz, write

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
