"""Files that are broken in thousands of ways: each gives a clean answer, and none a crash."""

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet
from scipy.io import savemat

from saas_ssl.images.form import Form
from saas_ssl.images.pixels import decode_chunk, look
from saas_ssl.sources.finding import find
from saas_ssl.sources.reading import read_source
from saas_ssl.sources.source import Source
from samples import (
    cifar_files,
    encoded,
    idx,
    noise,
    picture,
    plain,
    tar_gz,
    turned,
    write,
    write_hugging_face,
    write_plain,
    write_svhn,
)

FORMS = (Form(12, 12, 3), Form(9, 12, 1, 4095))


def mutated(data: bytes, random: Random) -> bytes:
    """A few bytes flipped, inserted or deleted, or the end cut off; headers more often."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 5)):
        if not changed:
            break
        at = random.randrange(len(changed))
        if random.random() < 0.5:  # formats keep what matters at the beginning or at the end
            at = random.choice([min(at, random.randrange(128)), max(at, len(changed) - 128)])
        deed = random.choice(["flip", "set", "set", "insert", "delete", "repeat", "cut"])
        if deed == "flip":
            changed[at] ^= 1 << random.randrange(8)
        elif deed == "set":
            changed[at] = random.choice([0, 1, 127, 128, 255, random.randrange(256)])
        elif deed == "insert":
            changed[at:at] = random.randbytes(random.randint(1, 8))
        elif deed == "delete":
            del changed[at : at + random.randint(1, 8)]
        elif deed == "repeat":
            changed[at:at] = changed[at : at + random.randint(1, 32)]
        elif random.random() < 0.3:
            del changed[at:]
    return bytes(changed)


def grey16() -> Image.Image:
    return Image.fromarray(noise(16, 12).astype(np.uint16) * 16)


IMAGES = {
    "jpeg": encoded(picture(16, 12), "JPEG", exif=turned(6)),
    "jpeg progressive": encoded(picture(16, 12), "JPEG", progressive=True),
    "jpeg cmyk": encoded(picture(16, 12, "CMYK"), "JPEG"),
    "png": encoded(picture(16, 12), "PNG", exif=turned(3), compress_level=0),
    "png palette": encoded(picture(16, 12).quantize(8), "PNG", transparency=0),
    "png 16 bits": encoded(grey16(), "PNG"),
    "webp": encoded(picture(16, 12), "WEBP", exif=turned(8)),
    "webp lossless": encoded(picture(16, 12, "RGBA"), "WEBP", lossless=True),
    "bmp": encoded(picture(16, 12), "BMP"),
    "bmp palette": encoded(picture(16, 12, "P"), "BMP"),
    "tiff": encoded(picture(16, 12), "TIFF", exif=turned(5)),
    "tiff lzw": encoded(picture(16, 12), "TIFF", compression="tiff_lzw"),
    "tiff deflate": encoded(picture(16, 12), "TIFF", compression="tiff_adobe_deflate"),
    "tiff jpeg": encoded(picture(16, 12), "TIFF", compression="jpeg"),
    "tiff 16 bits": encoded(grey16(), "TIFF"),
    "tiff float": encoded(Image.fromarray(noise(16, 12).astype(np.float32)), "TIFF"),
    "gif": encoded(picture(16, 12), "GIF"),
    "gif film": encoded(picture(16, 12), "GIF", save_all=True, append_images=[plain(9, 16, 12)]),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_a_mutated_image_gives_pixels_or_a_reason(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A few bytes may claim millions of pixels, which are decoded if they are below the limit.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1 << 18)
    random, good = Random(kind), 0  # noqa: S311
    assert decode_chunk([IMAGES[kind]], FORMS[0]).bad == {}
    for n in range(150):
        form = FORMS[n % 2]
        data = mutated(IMAGES[kind], random)
        with warnings.catch_warnings(record=True) as noticed:
            warnings.simplefilter("always")
            decoded = decode_chunk([data], form)
            look([data])
        assert noticed == []
        assert decoded.pixels.shape[1:] == (form.channels, form.height, form.width)
        assert len(decoded.pixels) + len(decoded.bad) == 1
        assert len(decoded.seen.sizes) == len(decoded.pixels)
        for reason in decoded.bad.values():
            check_sentence(reason)
        good += len(decoded.pixels)
    assert 0 < good < 150  # mutations that always or never matter would test nothing


def check_sentence(message: str) -> None:
    assert message.strip()
    assert len(message.splitlines()) == 1
    assert len(message) < 600


def outcome(action: Callable[[], object]) -> bool:
    """Whether an action succeeded; if not, it must have said why in one sentence."""
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        refusal = refused(action)
    assert noticed == []
    if refusal is not None:
        check_sentence(str(refusal))
        assert type(refusal) is ValueError  # not one that some library raised
    return refusal is None


def refused(action: Callable[[], object]) -> ValueError | None:
    try:
        action()
    except ValueError as error:
        return error
    return None


def mutations_of(
    path: Path, data: bytes, action: Callable[[], object], times: int
) -> tuple[int, int]:
    """(Successes, refusals) over mutations of one file."""
    random, good = Random(path.name), 0  # noqa: S311
    write(path, data)
    assert outcome(action)
    for _ in range(times):
        write(path, mutated(data, random))
        good += outcome(action)
    return good, times - good


LABELS = {
    "plain": b'path,label\na.png,cat\nb.png,dog\nsub/c.png,cat\n"d, e.png",\n',
    "semicolons": b"\xef\xbb\xbfpath;label;n\r\na.png;cat;1\r\nb.png;dog;\r\n\r\nsub\\c.png;;\r\n",
    "accents": 'label\tpath\nBär\té.png\n"Kuh ""1"""\t./a.png\n'.encode(),
}


@pytest.mark.parametrize("kind", LABELS)
def test_a_mutated_label_file_is_read_or_refused(tmp_path: Path, kind: str) -> None:
    names = ("a.png", "b.png", "sub/c.png", "d, e.png", "é.png")
    folder = write_plain(tmp_path / "images", dict.fromkeys(names, 1))
    path = tmp_path / f"{kind}.csv"

    def action() -> None:
        source = find(str(folder), path)
        assert isinstance(source, Source)
        assert len(source.labels) == len(source.ids) == len(names)
        assert set(source.classes) == {label for label in source.labels if label is not None}

    good, refused = mutations_of(path, LABELS[kind], action, 400)
    assert good > 5
    assert refused > 100


TABLES = {
    "paths.csv": b"path,label\na.png,cat\nsub/c.png,dog\n",
    "features.csv": b"id,x0,x1,label\np,1,2.5,a\nq,3,-4e2,b\nr,5,6,\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_mutated_table_is_read_or_refused(tmp_path: Path, name: str) -> None:
    write_plain(tmp_path, {"a.png": 1, "sub/c.png": 2})
    spec = str(tmp_path / name)
    good, refused = mutations_of(
        tmp_path / name, TABLES[name], lambda: read_source(find(spec)), 200
    )
    assert min(good, refused) > 5


def npz(packed: bool) -> bytes:
    buffer = io.BytesIO()
    save = np.savez_compressed if packed else np.savez
    save(buffer, x=noise(4, 5, 5), y=np.array([0, 1, -1, 1]), classes=np.array(["a", "b"]))
    return buffer.getvalue()


@pytest.mark.parametrize("packed", [True, False])
def test_a_mutated_npz_file_is_read_or_refused(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "a.npz"
    good, refused = mutations_of(path, npz(packed), lambda: read_source(find(str(path))), 200)
    assert min(good, refused) > 5


def parquet_bytes(kind: str, tmp_path: Path) -> bytes:
    path = tmp_path / "valid.parquet"
    if kind == "features":
        columns = {"x0": [1.0, 2.0, 3.0], "x1": [1, 2, 3], "label": ["a", None, "b"]}
        parquet.write_table(pa.table(columns), path)
    else:
        images = [encoded(plain(value)) for value in (10, 20, 30)]
        write_hugging_face(path, images, [0, 1, None], ["a", "b"], paths=["1", "2", "3"])
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["images", "features"])
def test_a_mutated_parquet_file_is_read_or_refused(tmp_path: Path, kind: str) -> None:
    data, path = parquet_bytes(kind, tmp_path), tmp_path / "a.parquet"
    good, refused = mutations_of(path, data, lambda: read_source(find(str(path))), 200)
    assert min(good, refused) > 5


def test_a_mutated_idx_file_is_read_or_refused(tmp_path: Path) -> None:
    write(tmp_path / "train-labels-idx1-ubyte", idx(np.array([0, 1, 0], np.uint8)))
    path = tmp_path / "train-images-idx3-ubyte"
    data = idx(noise(3, 5, 4))
    good, refused = mutations_of(path, data, lambda: find(f"idx:{tmp_path}"), 200)
    assert min(good, refused) > 5


@pytest.mark.parametrize("version", ["py", "bin"])
def test_a_mutated_cifar10_batch_is_read_or_refused(tmp_path: Path, version: str) -> None:
    files = cifar_files(version, rows=1)[0]
    for name, data in files.items():
        write(tmp_path / name, data)
    name = min(files)
    good, refused = mutations_of(
        tmp_path / name, files[name], lambda: find(f"cifar10:{tmp_path}"), 200
    )
    assert min(good, refused) > 5


def test_a_mutated_archive_is_read_or_refused(tmp_path: Path) -> None:
    data = tar_gz(cifar_files("bin", rows=1)[0])
    path = tmp_path / "cifar-10-binary.tar.gz"
    _, refused = mutations_of(path, data, lambda: find(f"cifar10:{tmp_path}"), 150)
    assert refused > 5


@pytest.mark.parametrize("packed", [True, False])
def test_a_mutated_matlab_file_is_read_or_refused(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "train_32x32.mat"
    write_svhn(path, noise(3, 4, 4, 3), [1, 10, 2])
    if not packed:
        y = np.array([[1], [10], [2]], np.uint8)
        savemat(path, {"X": noise(4, 4, 3, 3), "y": y}, do_compression=False)
    good, refused = mutations_of(path, path.read_bytes(), lambda: find(f"svhn:{tmp_path}"), 200)
    assert min(good, refused) > 5
