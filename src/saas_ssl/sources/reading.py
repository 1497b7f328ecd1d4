"""read(spec): data of any kind -> one PartiallyLabelled value."""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from saas_ssl.algorithm.partially_labelled import UNLABELLED, PartiallyLabelled
from saas_ssl.images.cache import Progress, as_map, decode_into_map
from saas_ssl.images.form import Form, Seen
from saas_ssl.images.pixels import Encoded
from saas_ssl.images.pool import CHUNK, Chunks, enough_workers
from saas_ssl.sources.finding import find
from saas_ssl.sources.source import Skipped, Source
from saas_ssl.sources.wording import counted, shown, some


@dataclass(frozen=True)
class Reading:
    """Data, and what became of the images on the way."""

    data: PartiallyLabelled
    form: Form | None  # that of the images; none: features
    features: Sequence[str] | None  # their names, if they have any
    skipped: list[Skipped]
    image: Callable[[int], Encoded] | None  # of a row of the data, as it was found; none: features
    reviewed: Tensor  # (N,) whether a row was labelled because it was doubtful


def read(
    spec: str | Path,
    labels: str | Path | None = None,
    image_size: int | None = None,
    *,
    cache: str | Path | None = None,
) -> PartiallyLabelled:
    """Read a folder, a CSV, npz or parquet file, or one of the well-known archives.

    `labels` is a CSV file with the labels, by `path` or `id`. Images are decoded into a
    memory-mapped file: a temporary one, or one in the folder `cache`, where the next call finds it.
    Files that cannot be decoded are left out with a warning.
    """
    source = find(str(spec), None if labels is None else Path(labels))
    reading = read_source(source, image_size, cache=None if cache is None else Path(cache))
    if reading.skipped:
        first = reading.skipped[0]
        files = counted(len(reading.skipped), "file")
        warnings.warn(f"{files} skipped; the first is {first.id}: {first.reason}", stacklevel=2)
    return reading.data


def read_source(
    source: Source,
    image_size: int | None = None,
    *,
    form: Form | None = None,
    cache: Path | None = None,
    progress: Progress = lambda _done: None,
    shared: bool = False,
) -> Reading:
    """Decode what was found; images take the `form` if there is one.

    If they are `shared`, even rows that were in memory come from a map in the cache, which all
    processes of a machine have in common.
    """
    _check_classes(source)
    if len(set(source.ids)) < len(source.ids):
        twice = [shown(id_) for id_, n in Counter(source.ids).items() if n > 1]
        raise ValueError(f"these ids belong to more than one row: {some(twice)}")
    if isinstance(source.rows, Tensor):
        x, form = _fitted(source.rows, image_size, form)
        x = as_map(x, cache) if shared and cache is not None else x
        bad = dict[int, str]()
    else:
        workers = enough_workers(len(source.ids))
        images = decode_into_map(
            source.rows, form, image_size, workers, progress, cache, source.stamp
        )
        x, form, bad = images.x, images.form, images.bad
        if len(x) + len(bad) != len(source.ids):
            raise ValueError(
                f"there are {len(source.ids)} rows but {len(x) + len(bad)} images: "
                "a broken file, or one that changed while it was read"
            )
        if len(x) == 0:
            reason = Counter(bad.values()).most_common(1)[0][0]
            raise ValueError(f"none of the {len(bad)} images can be used: {reason}")
    index = {name: k for k, name in enumerate(source.classes)}
    kept = [row for row in range(len(source.ids)) if row not in bad]
    y = [UNLABELLED if (name := source.labels[row]) is None else index[name] for row in kept]
    data = PartiallyLabelled(
        x, torch.tensor(y), list(source.classes), [source.ids[row] for row in kept]
    )
    skipped = [*source.skipped, *(Skipped(source.ids[row], why) for row, why in bad.items())]
    image = None if form is None else lambda row: source.image(kept[row])
    reviewed = torch.tensor([row in source.reviewed for row in kept], dtype=torch.bool)
    return Reading(data, form, source.features, skipped, image, reviewed)


def _fitted(x: Tensor, image_size: int | None, form: Form | None) -> tuple[Tensor, Form | None]:
    """Images at the size that is wanted, and their form; features as they are."""
    if x.ndim == 2:
        if image_size is not None or form is not None:
            raise ValueError("these data are features, not images")
        return x, None
    form = form or Seen(frozenset({(x.shape[2], x.shape[3])}), x.shape[1] == 3).form(image_size)
    return brought_to(x, form), form


def brought_to(x: Tensor, form: Form) -> Tensor:
    """uint8 images of any size in the form that is wanted."""
    if x.shape[1:] == (form.channels, form.height, form.width):
        return x
    return decode_into_map(pixel_chunks(x), form, None, 1, lambda _done: None).x


def pixel_chunks(x: Tensor) -> Chunks:
    """Images as stored, chunk by chunk, for bringing them to another form."""
    arrays = x.squeeze(1) if x.shape[1] == 1 else x.permute(0, 2, 3, 1)
    return lambda: (list(arrays[at : at + CHUNK].numpy()) for at in range(0, len(arrays), CHUNK))


def _check_classes(source: Source) -> None:
    if not source.classes:
        raise ValueError(
            "no row has a label: put some images into subfolders named by their class, or name a "
            "file of labels"
        )
    if len(source.classes) == 1:
        raise ValueError(
            f"every label is {source.classes[0]!r}: give labels of at least two classes"
        )
