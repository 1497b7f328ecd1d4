"""labels.csv, written whole: what the user came for."""

import csv
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from saas_ssl.trust.decisions import LabelRow


def write_labels(path: Path, rows: Iterable[LabelRow]) -> None:
    """Write labels.csv, or leave the one that was there."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("w", newline="", encoding="utf-8") as file:
            write_rows(file, rows)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_rows(file: TextIO, rows: Iterable[LabelRow]) -> None:
    """Write the header and the rows, one by one."""
    writer = csv.writer(file)
    writer.writerow(LabelRow._fields)
    writer.writerows(map(rounded, rows))


def rounded(row: LabelRow) -> LabelRow:
    """Probabilities to six digits."""
    return row._replace(
        probability=round(row.probability, 6),
        runner_up_probability=round(row.runner_up_probability, 6),
    )
