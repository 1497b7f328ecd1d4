"""Rows as they are shown: their pictures within the page, and what labels.csv says of them."""

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from saas_ssl.report.reading import label_rows
from saas_ssl.trust.decisions import LabelRow

Thumbnail = Callable[[int], tuple[bytes, str] | None]
"""A row of labels.csv, 0 being the first -> (a picture file, its media type), if it can be had."""

LARGEST_PICTURE = 20_000
"""In bytes; the number of pictures is bounded, too, and so is the page."""


@dataclass(frozen=True)
class Tile:
    """One row."""

    row: LabelRow
    picture: str | None  # a data: address
    is_small: bool  # so that every pixel is to be seen


def tiles(labels: Path, wanted: Iterable[int], thumbnail: Thumbnail | None) -> dict[int, Tile]:
    """The wanted rows of labels.csv by their numbers."""
    chosen = frozenset(wanted)
    return {
        n: Tile(row, *_picture(thumbnail(n) if thumbnail else None))
        for n, row in enumerate(label_rows(labels))
        if n in chosen
    }


def _picture(found: tuple[bytes, str] | None) -> tuple[str | None, bool]:
    if found is None or len(found[0]) > LARGEST_PICTURE:
        return None, False
    data, kind = found
    is_small = kind == "image/png"  # `as_picture` keeps PNG for those
    return f"data:{kind};base64,{base64.b64encode(data).decode()}", is_small
