"""CSV files as people have them: UTF-8 with or without a mark, any of four delimiters."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import _csv

_DELIMITERS = ",;\t|"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Table:
    """A header, and rows with the lines that they end on."""

    path: Path
    columns: list[str]
    rows: Iterator[tuple[int, list[str]]]  # as many cells as there are columns

    def column(self, name: str) -> int | None:
        """Where a column is, whatever the case of its name."""
        names = [column.casefold() for column in self.columns]
        if names.count(name) > 1:
            raise ValueError(f"{self.path} has more than one column {name!r}")
        return names.index(name) if name in names else None


@contextmanager
def opened_table(path: Path) -> Iterator[Table]:
    """Read a CSV file row by row; what is wrong with it is a ValueError with its line number."""
    try:
        # A spreadsheet's export may begin with a byte-order mark, which utf-8-sig takes away.
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield _table(path, file)
    except UnicodeDecodeError:
        raise ValueError(_wrong_encoding(path)) from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder, but a CSV file is needed") from None
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None


def _table(path: Path, file: TextIO) -> Table:
    first = file.readline()
    while first and not first.strip():
        first = file.readline()
    if not first:
        raise ValueError(f"{path} is empty: it needs a first line that names its columns")
    file.seek(0)
    delimiter = max(_DELIMITERS, key=first.count)
    rows = _rows(path, csv.reader(file, delimiter=delimiter, strict=True))
    _, columns = next(rows, (0, []))
    if not columns:
        raise ValueError(f"{path} is empty: it needs a first line that names its columns")
    columns = [column.strip() for column in columns]
    twice = sorted({name for name in columns if name and columns.count(name) > 1})
    if twice:
        raise ValueError(f"{path} has more than one column {twice[0]!r}")
    return Table(path, columns, _full_rows(path, rows, len(columns)))


def _rows(path: Path, reader: "_csv.Reader") -> Iterator[tuple[int, list[str]]]:
    """(Line number, cells) of each row that is not blank."""
    line = 0
    try:
        for cells in reader:
            line = reader.line_num
            if any(cell.strip() for cell in cells):
                yield line, cells
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise ValueError(
                f'{path}, line {line + 1}: a quotation mark (") is opened but never closed'
            ) from None
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from None


def _full_rows(
    path: Path, rows: Iterator[tuple[int, list[str]]], n: int
) -> Iterator[tuple[int, list[str]]]:
    for line, cells in rows:
        if any(cell.strip() for cell in cells[n:]):
            raise ValueError(
                f"{path}, line {line}: there are {len(cells)} values but {n} columns; a value that "
                "holds the delimiter needs quotes around it"
            )
        yield line, [cell.strip() for cell in cells[:n]] + [""] * (n - len(cells))


def _wrong_encoding(path: Path) -> str:
    data = path.read_bytes()
    if data.startswith(_UTF16):
        return f"{path} is UTF-16: save it as CSV in UTF-8"
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = len(data[: error.start + 1].splitlines())
        return f"{path}, line {line}: this is not UTF-8; save the file as CSV in UTF-8"
    return f"{path} changed while it was read"
