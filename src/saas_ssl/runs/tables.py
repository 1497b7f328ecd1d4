"""Tables of labels as files: CSV, parquet or standard output, whole or not at all."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from secrets import token_hex
from typing import Any

from saas_ssl.runs.directory import current_umask
from saas_ssl.runs.files import write_skipped
from saas_ssl.runs.labels import rounded, write_rows
from saas_ssl.sources.source import Skipped
from saas_ssl.trust.decisions import LabelRow

STDOUT = "-"
_PARQUET_ROWS = 1 << 16


def skipped_beside(out: Path) -> Path:
    """Where the skipped files of a table are listed."""
    return out.with_suffix(".skipped.csv")


def check_output(out: str, overwrite: bool) -> None:
    """Raise ValueError unless a table may be written there."""
    path = Path(out)
    if out == STDOUT:
        return
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise ValueError(f"{out} must end in .csv or .parquet, or be - for standard output")
    if path.is_dir():
        raise ValueError(f"{out} is a folder")
    for file in (path, skipped_beside(path)):
        if file.exists() and not overwrite:
            raise ValueError(f"{file} exists: choose another --out, or give --overwrite")
    if path.suffix.lower() == ".parquet":
        need_pyarrow()


def need_pyarrow() -> None:
    """Raise ValueError unless parquet can be written."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ValueError("writing parquet needs pyarrow: pip install 'saas-ssl[parquet]'") from None


def write_table(out: str, rows: Iterable[LabelRow], skipped: list[Skipped]) -> None:
    """Write the rows; files appear whole, or not at all. `skipped` fills while rows are asked for.

    What was skipped goes into a file beside the table, named after it.
    """
    if out == STDOUT:
        write_rows(sys.stdout, rows)
        sys.stdout.flush()
        return
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_beside(path) as partial:
        if path.suffix.lower() == ".parquet":
            write_parquet(partial, LabelRow.__annotations__, map(rounded, rows))
        else:
            with partial.open("w", newline="", encoding="utf-8") as file:
                write_rows(file, rows)
    with written_beside(skipped_beside(path)) as partial:
        write_skipped(partial, skipped)


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A file to write that becomes `path` if the block ends well, and takes its place if empty."""
    # Named before it is made, so that it is known whenever a signal may come.
    partial = path.with_name(f".{path.name}.{token_hex(4)}.partial")
    try:
        partial.touch(0o600, exist_ok=False)
        yield partial
        if partial.stat().st_size:
            partial.chmod(0o666 & ~current_umask())
            partial.replace(path)
        else:
            path.unlink(missing_ok=True)  # of an earlier call
    finally:
        partial.unlink(missing_ok=True)


def write_parquet(path: Path, kinds: Mapping[str, type], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows of values: columns of floats or of text, by their names."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema(
        [(name, pa.float64() if kind is float else pa.string()) for name, kind in kinds.items()]
    )
    rows = iter(rows)
    with parquet.ParquetWriter(path, schema) as writer:
        while block := list(islice(rows, _PARQUET_ROWS)):
            columns = list(zip(*block, strict=True))
            writer.write_table(pa.table([*map(list, columns)], schema=schema))
