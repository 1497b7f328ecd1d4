"""What a spec names: rows found, their labels known, their images not yet decoded."""

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from saas_ssl.images.pixels import Encoded
from saas_ssl.images.pool import CHUNK, Chunks
from saas_ssl.sources.wording import some


class Skipped(NamedTuple):
    """One line of skipped.csv."""

    id: str
    reason: str


@dataclass(frozen=True)
class Source:
    """Rows as they were found: images to decode, or tensors."""

    ids: Sequence[str]
    labels: Sequence[str | None]  # one for each id; none: unlabelled
    classes: Sequence[str]
    rows: Chunks | Tensor  # images to decode; or uint8 images (N, C, H, W), float32 features (N, D)
    stamp: str = ""  # of images to decode: changes when their files do
    skipped: Sequence[Skipped] = ()  # what was found but is no row
    features: Sequence[str] | None = None  # the names of features, if they have any
    image_at: Callable[[int], Encoded] | None = None  # of images to decode: one, in any order
    reviewed: frozenset[int] = frozenset()  # rows labelled because they were doubtful

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.labels):  # of a broken file
            raise ValueError(f"there are {len(self.ids)} rows but {len(self.labels)} labels")
        for names in (self.ids, self.classes):
            try:
                "".join(names).encode()
            except UnicodeEncodeError:  # better now than when labels.csv is written
                raise ValueError("a name is not text that can be written as UTF-8") from None

    def image(self, row: int) -> Encoded:
        """The image of one row as it was found, where the rows are images."""
        if isinstance(self.rows, Tensor):
            return pixels_of(self.rows[row])
        if self.image_at is None:
            raise ValueError("these images can only be read in their order")
        return self.image_at(row)


def pixels_of(x: Tensor) -> Encoded:
    """(C, H, W) as an image: (H, W), or (H, W, C)."""
    return (x.squeeze(0) if len(x) == 1 else x.permute(1, 2, 0)).contiguous().numpy()


def class_names(labels: Iterable[str | None]) -> list[str]:
    """The distinct labels in order, numbers by their value."""
    names = {label for label in labels if label is not None}
    if all(name.isdecimal() and name.isascii() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def files_below(folder: Path, ids: Sequence[str]) -> Chunks:
    """Files by their paths from a folder, chunk by chunk: no memory for a million paths."""
    return lambda: (
        [os.path.join(folder, id_) for id_ in ids[at : at + CHUNK]]
        for at in range(0, len(ids), CHUNK)
    )


def file_below(folder: Path, ids: Sequence[str]) -> Callable[[int], Encoded]:
    """A file by its number."""
    return lambda row: os.path.join(folder, ids[row])


def in_order(
    x: Tensor, names: Sequence[str] | None, wanted: Sequence[str] | None, n: int
) -> Tensor:
    """The n features that are wanted, by their names where both sides have them."""
    if names is not None and wanted is not None:
        missing = [name for name in wanted if name not in names]
        if missing:
            raise ValueError(f"these data have no feature {some(missing)}")
        return x[:, [names.index(name) for name in wanted]]
    if x.shape[1] != n:
        raise ValueError(f"{n} features are needed, but these data have {x.shape[1]}")
    return x


def stamp_of(files: Iterable[str | Path]) -> str:
    """Where files are, how large they are and when they were written last."""
    digest = hashlib.sha256(os.fsencode(os.getcwd()))  # paths may be relative to it
    for file in files:
        try:
            stat = os.stat(file)
            facts = (str(file), stat.st_size, stat.st_mtime_ns)
        except OSError as error:  # decoding will say so; here it only has to be told apart
            facts = (str(file), -1, error.errno or 0)
        digest.update(repr(facts).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
