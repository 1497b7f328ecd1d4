"""The image of each row, wherever the data are: a file, or the bytes of one."""

import io
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from torch import Tensor

from saas_ssl.images.pixels import Encoded
from saas_ssl.runs.finished import Labels, source_of
from saas_ssl.sources.reading import pixel_chunks
from saas_ssl.sources.source import Source

_KINDS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")  # no other, as in images/pixels.py

Picture = Path | bytes
"""A file; or its bytes, where the data are not files of images."""


def find_pictures(labels: Labels) -> Iterator[tuple[int, Picture]]:
    """(Row of the labels, its image) in the order of the data; all are known to be there."""
    if not labels.has_images:
        raise ValueError(
            f"{labels.run} labels features, which are no images: choose csv, parquet or cleanlab"
        )
    source = source_of(labels)
    places = {row["id"]: place for place, row in enumerate(labels.rows)}
    return _pictures(source, places)


def _pictures(source: Source, places: dict[str, int]) -> Iterator[tuple[int, Picture]]:
    chunks = pixel_chunks(source.rows)() if isinstance(source.rows, Tensor) else source.rows()
    images = (image for chunk in chunks for image in chunk)
    for id_, image in zip(source.ids, images, strict=True):
        if (place := places.pop(id_, None)) is not None:
            yield place, _as_file(image)


def _as_file(image: Encoded) -> Picture:
    if isinstance(image, str | Path):
        return Path(image)
    if isinstance(image, bytes):
        return image
    buffer = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(buffer, "PNG")
    return buffer.getvalue()


def kind_of(image: bytes) -> str:
    """png, jpeg, ...: both the end of a file's name and the second half of a media type."""
    with Image.open(io.BytesIO(image), formats=_KINDS) as opened:
        return str(opened.format).lower()
