"""Small real files of every kind that is read, as the programs of their time wrote them."""

import gzip
import io
import json
import re
import struct
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from PIL import Image
from pyarrow import parquet
from scipy.io import savemat

Bytes = NDArray[np.uint8]


def refusal(action: Callable[[], object]) -> str:
    """The one line in which something is refused."""
    with pytest.raises(ValueError, match=re.compile(r".+", re.DOTALL)) as caught:
        action()
    message = str(caught.value)
    assert type(caught.value) is ValueError
    assert "\n" not in message
    return message


def noise(*shape: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def picture(height: int = 8, width: int = 8, mode: str = "RGB", seed: int = 0) -> Image.Image:
    return Image.fromarray(noise(height, width, 3, seed=seed)).convert(mode)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def plain(value: int, height: int = 8, width: int = 8) -> Image.Image:
    """A grey image of one value, by which its row is recognised."""
    return Image.new("L", (width, height), value)


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def write_plain(folder: Path, values: dict[str, int]) -> Path:
    """Grey images of one value each, by their names below a folder."""
    for name, value in values.items():
        write(folder / name, encoded(plain(value)))
    return folder


def idx(array: Bytes) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + bytes(array)
    )


def write_idx(folder: Path, images: Bytes, labels: Bytes, part: str = "train") -> None:
    write(folder / f"{part}-images-idx3-ubyte.gz", gzip.compress(idx(images)))
    write(folder / f"{part}-labels-idx1-ubyte.gz", gzip.compress(idx(labels)))


def _short(text: bytes) -> bytes:
    return b"U" + bytes([len(text)]) + text  # SHORT_BINSTRING, which Python 3 never writes


def _int(n: int) -> bytes:
    return b"J" + struct.pack("<i", n)


def cifar_pickle(pixels: Bytes, labels: Sequence[int]) -> bytes:
    """A batch file of the python version, in the opcodes of Python 2 and its numpy."""
    dtype = (
        b"cnumpy\ndtype\n" + _short(b"u1") + b"K\x00K\x01\x87R"
        b"(K\x03" + _short(b"|") + b"NNN" + _int(-1) + _int(-1) + b"K\x00tb"
    )
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85q\x03"
        + _short(b"b")
        + b"\x87R(K\x01"
        + _int(pixels.shape[0])
        + _int(pixels.shape[1])
        + b"\x86"
        + dtype
        + b"\x89T"  # NEWFALSE: rows; BINSTRING
        + struct.pack("<i", pixels.size)
        + pixels.tobytes()
        + b"tb"
    )
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    items = {b"batch_label": _short(b"training batch 1 of 5"), b"labels": numbers, b"data": array}
    return b"\x80\x02}q\x00(" + b"".join(_short(k) + v for k, v in items.items()) + b"u."


def cifar_binary(pixels: Bytes, labels: Sequence[int]) -> bytes:
    return b"".join(
        bytes([label]) + row.tobytes() for label, row in zip(labels, pixels, strict=True)
    )


def cifar_files(version: str, rows: int = 4) -> tuple[dict[str, bytes], Bytes, list[int]]:
    """(The files of a version by name, the pixels and the labels of its training part)."""
    pixels, labels = noise(5 * rows, 3072), [row % 10 for row in range(5 * rows)]
    pack, suffix = (cifar_pickle, "") if version == "py" else (cifar_binary, ".bin")
    files = {
        f"data_batch_{n + 1}{suffix}": pack(
            pixels[n * rows : (n + 1) * rows], labels[n * rows : (n + 1) * rows]
        )
        for n in range(5)
    }
    files[f"test_batch{suffix}"] = pack(noise(2, 3072, seed=1), [9, 3])
    return files, pixels, labels


def tar_gz(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def write_svhn(path: Path, images: Bytes, labels: Sequence[int]) -> Path:
    """Images (N, H, W, 3) the way MATLAB has them: the row last."""
    y = np.array(labels, np.uint8)[:, None]
    savemat(path, {"X": images.transpose(1, 2, 3, 0), "y": y}, do_compression=True)
    return path


def write_hugging_face(
    path: Path,
    images: Sequence[bytes | None],
    labels: Sequence[int | None],
    names: Sequence[str] = (),
    column: str = "image",
    paths: Sequence[str | None] | None = None,
) -> Path:
    """A parquet file as `datasets` writes it: structs, and class names in the metadata."""
    places = paths if paths is not None else [None] * len(images)
    rows = [
        None if data is None else {"bytes": data, "path": place}
        for data, place in zip(images, places, strict=True)
    ]
    struct_type = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({column: pa.array(rows, struct_type), "label": pa.array(labels, pa.int64())})
    features = {column: {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": list(names)}}
    if names:
        info = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": info})
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)
    return path


def hugging_face(path: Path, **options: Any) -> Path:
    images = [encoded(plain(value)) for value in (10, 20, 30, 40)]
    return write_hugging_face(path, images, [1, 0, None, -1], ["dog", "cat"], **options)
