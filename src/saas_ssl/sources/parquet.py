"""Parquet files as Hugging Face writes them, or with columns of features."""

import json
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from saas_ssl.images.pixels import Encoded
from saas_ssl.images.pool import CHUNK
from saas_ssl.sources.source import Source, class_names, stamp_of
from saas_ssl.sources.wording import some

_IMAGE_COLUMNS = ("image", "img")
_LABEL, _ID = "label", "id"
_SPLITS = ("train", "test", "validation")
_ROW_NUMBERS = "__index_level_0__"  # what pandas calls the column of its index


def find_parquet(files: Sequence[Path]) -> Source:
    """Columns `image` (bytes, or a struct that holds them) or features, and `label`."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise ValueError("reading parquet needs pyarrow: pip install 'saas-ssl[parquet]'") from None
    with _in_one_sentence(files):
        schemas = [parquet.read_schema(file) for file in files]
        for file, schema in zip(files, schemas, strict=True):
            if schema.names != schemas[0].names:
                raise ValueError(f"{file} has other columns than {files[0]}")
            if _class_names(schema) != _class_names(schemas[0]):
                raise ValueError(f"{file} has other class names than {files[0]}")
        return _find(files, schemas[0])


@contextmanager
def _in_one_sentence(files: Sequence[Path]) -> Iterator[None]:
    """Broken files are found when they are opened, or only when their images are read."""
    from pyarrow import ArrowException

    try:
        yield
    except FileNotFoundError as error:
        raise ValueError(f"{error.filename} does not exist") from None
    except (ArrowException, OSError, UnicodeError) as error:
        reason = " ".join(str(error).split())[:200]
        names = some([str(file) for file in files], 1)
        raise ValueError(f"{names} cannot be read as parquet: {reason}") from None


def _find(files: Sequence[Path], schema: Any) -> Source:
    from pyarrow import parquet, types

    image = next((name for name in _IMAGE_COLUMNS if name in schema.names), None)
    labels = _labels(files, schema)
    names = _class_names(schema)
    present = class_names(labels)
    classes = [name for name in names if name in present] if names else present
    if image is not None:
        nested = types.is_struct(schema.field(image).type)
        _check_bytes(files[0], schema.field(image))
        rows = sum(parquet.ParquetFile(file).metadata.num_rows for file in files)
        ids = _ids(files, schema, image, rows)
        return Source(
            ids,
            labels or [None] * rows,
            classes,
            lambda: _images(files, image, nested),
            stamp_of(files),
            image_at=_image_at(files, image, nested),
        )
    numeric = [
        field.name
        for field in schema
        if field.name not in (_LABEL, _ID, _ROW_NUMBERS)
        and (types.is_integer(field.type) or types.is_floating(field.type))
    ]
    if not numeric:
        raise ValueError(
            f"{files[0]} has neither a column image nor columns of numbers: "
            f"its columns are {some(list(schema.names))}"
        )
    columns = [
        [math.nan if value is None else value for value in _column(files, name)] for name in numeric
    ]
    x = torch.tensor(columns, dtype=torch.float32).T.contiguous()
    ids = _column(files, _ID) if _ID in schema.names else [str(row) for row in range(len(x))]
    return Source(
        [str(id_) for id_ in ids], labels or [None] * len(x), classes, x, features=numeric
    )


def _labels(files: Sequence[Path], schema: Any) -> list[str | None]:
    """Names of the labels; null, -1 and empty text mean unlabelled."""
    if _LABEL not in schema.names:
        return []
    names, values = _class_names(schema), [_plain(value) for value in _column(files, _LABEL)]
    outside = [v for v in values if names and isinstance(v, int) and not -1 <= v < len(names)]
    if outside:
        raise ValueError(f"{files[0]} has the label {outside[0]} but only {len(names)} class names")
    return [
        None
        if value in (None, -1, "")
        else names[value]
        if names and isinstance(value, int)
        else str(value)
        for value in values
    ]


def _plain(value: Any) -> Any:
    """Whole numbers for floating-point ones: a table with missing labels often holds these."""
    if isinstance(value, float):
        return None if math.isnan(value) else int(value) if value.is_integer() else value
    return value.strip() if isinstance(value, str) else value


def _check_bytes(file: Path, field: Any) -> None:
    """An image column must hold the images themselves."""
    from pyarrow import types

    kinds = [field.type]
    if types.is_struct(field.type):
        kinds = [part.type for part in field.type if part.name == "bytes"]
    if not any("binary" in str(kind) for kind in kinds):
        raise ValueError(
            f"{file}: the column {field.name} must hold the bytes of images, but it is {field.type}"
        )


def _class_names(schema: Any) -> list[str]:
    """What Hugging Face's metadata call the classes, if they do."""
    try:
        metadata = json.loads((schema.metadata or {})[b"huggingface"])
        return [str(name) for name in metadata["info"]["features"][_LABEL]["names"]]
    except (KeyError, TypeError, ValueError):
        return []


def _ids(files: Sequence[Path], schema: Any, image: str, rows: int) -> list[str]:
    """The column `id`; else the images' paths if they tell rows apart; else row numbers."""
    from pyarrow import types

    found: list[Any] = []
    if _ID in schema.names:
        return [str(value) for value in _column(files, _ID)]
    if types.is_struct(schema.field(image).type) and any(
        field.name == "path" for field in schema.field(image).type
    ):
        found = [value and value["path"] for value in _column(files, f"{image}.path")]
    if len(set(found)) == rows and all(value not in (None, "") for value in found):
        return [str(value) for value in found]
    return [str(row) for row in range(rows)]


def _column(files: Sequence[Path], column: str) -> list[Any]:
    """One column of all files; of `a.b` the structs a with b alone."""
    from pyarrow import parquet

    values = list[Any]()
    for file in files:
        with parquet.ParquetFile(file) as opened:
            values += opened.read(columns=[column]).column(0).to_pylist()
    return values


def _images(files: Sequence[Path], column: str, nested: bool) -> Iterator[Sequence[Encoded]]:
    from pyarrow import parquet

    for file in files:
        with _in_one_sentence([file]), parquet.ParquetFile(file) as opened:
            for batch in opened.iter_batches(
                CHUNK, columns=[f"{column}.bytes" if nested else column]
            ):
                values = batch.column(0).to_pylist()
                if nested:
                    values = [value and value["bytes"] for value in values]
                yield [value or b"" for value in values]


def _image_at(files: Sequence[Path], column: str, nested: bool) -> Callable[[int], Encoded]:
    """One image by its number; the row group that it is in stays in memory for its neighbours."""
    from pyarrow import parquet

    groups = list[tuple[Path, int]]()
    ends = list[int]()  # the number of the first row after each group
    for file in files:
        with parquet.ParquetFile(file) as opened:
            for group in range(opened.num_row_groups):
                groups.append((file, group))
                ends.append((ends or [0])[-1] + opened.metadata.row_group(group).num_rows)

    @lru_cache(maxsize=1)
    def read(at: int) -> Any:
        file, group = groups[at]
        with _in_one_sentence([file]), parquet.ParquetFile(file) as opened:
            return opened.read_row_group(group, [f"{column}.bytes" if nested else column]).column(0)

    def image_at(row: int) -> Encoded:
        at = bisect_right(ends, row)
        value = read(at)[row - ends[at]].as_py()  # counted from the end of the group
        return (value and value["bytes"] if nested else value) or b""

    return image_at


def one_split(files: Sequence[Path], folder: Path) -> Sequence[Path]:
    """Parquet files of one split; Hugging Face begins their names with it."""
    splits = sorted({split for split in _SPLITS for file in files if file.name.startswith(split)})
    if len(splits) > 1:
        raise ValueError(
            f"{folder} holds the parts {some(splits)}: choose one, such as "
            f"'{folder / splits[-1]}*.parquet'"
        )
    return files
