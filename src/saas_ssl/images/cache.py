"""Decoded images in a memory-mapped file, kept for the next run over the same files."""

import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from saas_ssl.algorithm.blocks import in_blocks
from saas_ssl.images.form import Form
from saas_ssl.images.pixels import look
from saas_ssl.images.pool import Chunks, decoded

Progress = Callable[[int], None]
"""Called with the number of images done so far."""

_VERSION = 1  # of how images are decoded: another one makes older files useless


@dataclass(frozen=True)
class Images:
    """Images of one form, memory-mapped."""

    x: Tensor  # uint8 (n, C, H, W)
    form: Form
    bad: dict[int, str]  # rows of the source that are not in x, and why


def decode_into_map(
    chunks: Chunks,
    form: Form | None,
    image_size: int | None,
    workers: int,
    progress: Progress,
    cache: Path | None = None,
    stamp: str = "",
) -> Images:
    """Decode all images once; with a `cache` folder and a `stamp`, only if it was not done before.

    Without a `form` it is the one that suits the images, at `image_size` if that is given.
    """
    if cache is None or not stamp:
        with tempfile.TemporaryFile() as file:
            form, rows, bad = _decode(chunks, form, image_size, workers, progress, file)
            return _mapped(file, form, rows, bad)
    wish = (_VERSION, stamp, image_size, form and asdict(form))
    name = sha256(json.dumps(wish).encode()).hexdigest()[:32]
    record, pixels = cache / f"{name}.json", cache / f"{name}.pixels"
    # Not there, or not whole:
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        facts = json.loads(record.read_text(encoding="utf-8"))
        bad = {int(row): str(reason) for row, reason in facts["bad"].items()}
        with pixels.open("rb") as file:
            return _mapped(file, Form(**facts["form"]), facts["rows"], bad)
    cache.mkdir(parents=True, exist_ok=True)
    _remove_old_partials(cache)
    partials = [_new_partial(cache), _new_partial(cache)]
    try:
        with partials[0].open("w+b") as file:
            form, rows, bad = _decode(chunks, form, image_size, workers, progress, file)
            images = _mapped(file, form, rows, bad)
        facts = {"form": asdict(form), "rows": rows, "bad": bad}
        partials[1].write_text(json.dumps(facts), encoding="utf-8")
        partials[0].replace(pixels)
        partials[1].replace(record)  # last: the pixels count only with their record
        return images
    finally:
        for partial in partials:
            partial.unlink(missing_ok=True)


def as_map(x: Tensor, cache: Path) -> Tensor:
    """The same rows in a memory-mapped file, which is written only if it is not there."""
    array = x.numpy()
    digest = sha256(repr((_VERSION, array.shape, str(array.dtype))).encode())
    for block in in_blocks(x):
        digest.update(block.contiguous().numpy().data)
    rows = cache / f"{digest.hexdigest()[:32]}.rows"
    if not rows.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        _remove_old_partials(cache)
        partial = _new_partial(cache)
        try:
            with partial.open("wb") as file:
                for block in in_blocks(x):
                    file.write(block.contiguous().numpy().data)
            partial.replace(rows)
        finally:
            partial.unlink(missing_ok=True)
    return torch.from_numpy(np.memmap(rows, array.dtype, "c", shape=array.shape))


def _new_partial(cache: Path) -> Path:
    descriptor, name = tempfile.mkstemp(suffix=".partial", dir=cache)
    os.close(descriptor)
    return Path(name)


def _remove_old_partials(cache: Path) -> None:
    """What a killed process left behind; a day is longer than any decoding takes."""
    for partial in cache.glob("*.partial"):
        with suppress(OSError):
            if time.time() - partial.stat().st_mtime > 86_400:
                partial.unlink()


def _decode(
    chunks: Chunks,
    form: Form | None,
    image_size: int | None,
    workers: int,
    progress: Progress,
    file: IO[bytes],
) -> tuple[Form, int, dict[int, str]]:
    """Write the pixels of every image that can be decoded, one after the other."""
    seen = look(next(chunks(), ()))
    guess = form or seen.form(image_size)
    while True:
        file.seek(0)
        file.truncate()
        n, rows, bad = 0, 0, dict[int, str]()
        with closing(decoded(chunks(), guess, workers)) as parts:
            for part in parts:
                seen |= part.seen
                if form is None and seen.form(image_size) != guess:
                    break  # the first images were not like the others: begin again
                file.write(part.pixels.data)
                bad.update({n + place: reason for place, reason in part.bad.items()})
                n += len(part.pixels) + len(part.bad)
                rows += len(part.pixels)
                progress(n)
            else:
                file.flush()
                return guess, rows, bad
        guess = seen.form(image_size)


def _mapped(file: IO[bytes], form: Form, rows: int, bad: dict[int, str]) -> Images:
    shape = (rows, form.channels, form.height, form.width)
    if os.fstat(file.fileno()).st_size != np.prod(shape):
        raise ValueError("the file has another size")
    if rows == 0:
        return Images(torch.empty(shape, dtype=torch.uint8), form, bad)
    # Copy-on-write: torch wants tensors that could be written to, and nothing is ever written.
    return Images(torch.from_numpy(np.memmap(file, np.uint8, "c", shape=shape)), form, bad)
