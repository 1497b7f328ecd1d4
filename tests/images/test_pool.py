import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saas_ssl.images.form import Form
from saas_ssl.images.pixels import Encoded
from saas_ssl.images.pool import CHUNK, decoded, enough_workers
from samples import encoded, noise, picture, plain, write, write_plain

FORM = Form(8, 8, 1)
CHILDREN = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
needs_proc = pytest.mark.skipif(not CHILDREN.exists(), reason="children are counted in /proc")


class Deadly:
    """Where it is unpickled, that process dies as by a decoder's bug; here it is only pickled."""

    def __init__(self, deed: str = "os.kill(os.getpid(), 9)") -> None:
        self._deed = deed

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"import os; {self._deed}",)


def deadly(deed: str = "os.kill(os.getpid(), 9)") -> Any:
    return Deadly(deed)


def chunks_of(images: Sequence[Encoded], size: int = 5) -> Iterator[Sequence[Encoded]]:
    return (images[at : at + size] for at in range(0, len(images), size))


def children() -> set[str]:
    # Threads have children of their own, so all of them are asked. One that has been joined may
    # still be listed for a moment; its children have gone to another.
    found = set[str]()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found.update((task / "children").read_text().split())
    return found


def test_workers_decode_the_same_in_the_same_order() -> None:
    images: list[Encoded] = [encoded(picture(9 + row % 7, 12, seed=row)) for row in range(93)]
    images[17] = b"broken"
    form = Form(16, 16, 3)
    alone, together = (list(decoded(chunks_of(images), form, n)) for n in (1, 2))
    assert len(alone) == len(together) == 19
    for one, two in zip(alone, together, strict=True):
        assert (one.pixels == two.pixels).all()
        assert (one.bad, one.seen) == (two.bad, two.seen)
    assert [part.bad for part in together if part.bad] == [alone[3].bad]


def test_workers_need_neither_torch_nor_numpy_for_usual_images(tmp_path: Path) -> None:
    script = write(
        tmp_path / "script.py",
        b"import sys\n"
        b"from saas_ssl.images.pool import decode_chunk\n"
        b"from saas_ssl.images.pixels import Form\n"
        b"part = decode_chunk([open(sys.argv[1], 'rb').read()], Form(8, 8, 3))\n"
        b"print(len(part.lines), {'numpy', 'torch'} & set(sys.modules))\n",
    )
    image = write(tmp_path / "a.jpg", encoded(picture(), "JPEG"))
    assert run_script(script, str(image), cwd=tmp_path) == "192 set()"


def test_workers_decode_every_kind_of_source(tmp_path: Path) -> None:
    data = encoded(plain(33))
    path, array = write(tmp_path / "a.png", data), np.full((8, 8), 33, np.uint8)
    images: list[Encoded] = [data, path, str(path), array, plain(33), tmp_path / "none.png"]
    (part,) = decoded([images], FORM, 2)
    assert (part.pixels == 33).all()
    assert len(part.pixels) == 5
    assert part.bad == {5: "the file does not exist"}


@pytest.mark.parametrize("places", [[0], [2, 3], [0, 1, 2, 3]])
def test_an_image_that_kills_its_worker_is_skipped_alone(places: list[int]) -> None:
    images: list[Encoded] = [encoded(plain(row)) for row in range(12)]
    for place in places:
        images[4 + place] = deadly()
    parts = list(decoded(chunks_of(images, 4), FORM, 2))
    assert [part.bad for part in parts] == [
        {},
        dict.fromkeys(places, "the image crashes its decoder"),
        {},
    ]
    values = [int(image[0, 0, 0]) for part in parts for image in part.pixels]
    assert values == [row for row in range(12) if row - 4 not in places]


def test_workers_that_cannot_run_are_told_from_images_that_crash() -> None:
    images: list[Encoded] = [deadly("os._exit(3)")]
    with pytest.raises(OSError, match="the processes that decode images cannot run here"):
        list(decoded([images], FORM, 2))


@needs_proc
@pytest.mark.parametrize("last", [b"", deadly()], ids=["quiet", "while a worker is replaced"])
def test_a_reader_that_has_had_enough_leaves_no_processes(last: Encoded) -> None:
    before = children()
    images: list[Encoded] = [encoded(plain(row)) for row in range(200)]
    images[50:] = [last] * 150
    reader = decoded(chunks_of(images), FORM, 2)
    assert len(next(reader).pixels) == 5
    assert children() > before
    reader.close()
    assert children() == before


@needs_proc
def test_workers_end_with_the_images() -> None:
    before = children()
    assert len(list(decoded(chunks_of([encoded(plain(1))] * 20), FORM, 2))) == 4
    assert children() == before


@needs_proc
def test_an_error_while_images_are_found_ends_the_workers() -> None:
    def broken() -> Iterator[Sequence[Encoded]]:
        yield [encoded(plain(1))]
        raise ValueError("the file is broken")

    before = children()
    with pytest.raises(ValueError, match="the file is broken"):
        list(decoded(broken(), FORM, 2))
    assert children() == before


def test_chunks_are_asked_for_only_a_little_ahead() -> None:
    # All of them at once would not fit into memory.
    asked = 0

    def endless() -> Iterator[Sequence[Encoded]]:
        nonlocal asked
        while True:
            asked += 1
            yield [encoded(plain(1))]

    reader = decoded(endless(), FORM, 2)
    for _ in range(5):
        next(reader)
    reader.close()
    assert asked <= 5 + 2 * 4 + 1


def test_a_worker_starts_only_for_enough_images() -> None:
    assert enough_workers(0) == enough_workers(1) == enough_workers(4 * CHUNK) == 1
    assert enough_workers(8 * CHUNK) <= 2
    assert 1 <= enough_workers(10**7) <= (os.cpu_count() or 1)


SCRIPT = """
import sys
from saas_ssl.sources.reading import read

data = read(sys.argv[1])  # at the top level: no `if __name__ == "__main__"`
print(len(data.y), data.x.shape, int(data.x.long().sum()))
"""


@pytest.fixture(scope="module")
def many_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    return write_plain(folder, {f"{'ab'[row % 2]}/{row:04}.png": row % 251 for row in range(600)})


def run_script(script: Path, *arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(script), *arguments], cwd=cwd, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_read_works_at_the_top_level_of_a_script(many_images: Path, tmp_path: Path) -> None:
    script = write(tmp_path / "script.py", SCRIPT.encode())
    total = 64 * sum(row % 251 for row in range(600))
    expected = f"600 torch.Size([600, 1, 8, 8]) {total}"
    assert run_script(script, str(many_images), cwd=tmp_path) == expected


def test_workers_import_nothing_from_the_working_directory(tmp_path: Path) -> None:
    work, marker = tmp_path / "work", tmp_path / "was here"
    for name in ("numpy", "PIL", "saas_ssl", "pickle", "io"):
        write(work / f"{name}.py", f"open({str(marker)!r}, 'w'); raise SystemExit(1)".encode())
    script = write(
        tmp_path / "script.py",
        b"import sys\n"
        b"import numpy  # as every caller has: this process may import what it likes\n"
        b"from saas_ssl.images.pool import decoded\n"
        b"from saas_ssl.images.pixels import Form\n"
        b"sys.path.insert(0, '')  # as in an interactive session\n"
        b"images = [open(sys.argv[1], 'rb').read()] * 3\n"
        b"print(sum(len(part.pixels) for part in decoded([images] * 3, Form(8, 8, 1), 2)))\n",
    )
    image = write(tmp_path / "a.png", encoded(plain(1)))
    assert run_script(script, str(image), cwd=work) == "9"
    assert not marker.exists()


def test_what_decoders_print_is_not_seen(capfd: pytest.CaptureFixture[str]) -> None:
    # libtiff writes to the terminal when a strip is broken.
    tiff = bytearray(encoded(picture(), "TIFF", compression="tiff_adobe_deflate"))
    at = tiff.index(b"x\x9c") if b"x\x9c" in tiff else tiff.index(b"x\xda")
    tiff[at + 4 : at + 8] = noise(4).tobytes()
    (part,) = decoded([[bytes(tiff), encoded(plain(5))]], FORM, 2)
    assert list(part.bad) == [0]
    assert (part.pixels == 5).all()
    assert capfd.readouterr() == ("", "")


def test_closing_does_not_wait_for_all_that_is_left() -> None:
    slow: list[Encoded] = [deadly("__import__('time').sleep(120)")]
    chunks: list[Sequence[Encoded]] = [[encoded(plain(1))], *[slow] * 20]
    reader = decoded(chunks, FORM, 2)
    started = time.monotonic()
    assert len(next(reader).pixels) == 1
    reader.close()
    assert time.monotonic() - started < 100
