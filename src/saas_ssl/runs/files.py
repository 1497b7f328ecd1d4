"""The files of a run by their names, and how some of them are written."""

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from saas_ssl.runs.checkpoints import to_bytes, write_safely
from saas_ssl.sources.source import Skipped

RUN_FILE = "run.json"
METRICS_FILE = "metrics.jsonl"
LABELS_FILE = "labels.csv"
POSTERIOR_FILE = "posterior.safetensors"
SKIPPED_FILE = "skipped.csv"
REPORT_FILE = "report.html"
REVIEW_FILE = "review.jsonl"
MODEL_FILE, WEIGHTS_FILE = "model.json", "model.safetensors"
ESTIMATOR_FILE = "estimator.json"
CHECKPOINT_FOLDER, BOARD_FOLDER = "checkpoint", "tensorboard"
FILES = frozenset(
    {
        RUN_FILE,
        METRICS_FILE,
        LABELS_FILE,
        POSTERIOR_FILE,
        SKIPPED_FILE,
        REPORT_FILE,
        MODEL_FILE,
        WEIGHTS_FILE,
        CHECKPOINT_FOLDER,
        BOARD_FOLDER,
    }
)
"""All that a run writes; a directory with anything else in it is never deleted."""


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by their names."""
    write_safely(path, to_bytes(tensors))


def write_skipped(path: Path, skipped: Sequence[Skipped]) -> None:
    """Write skipped.csv: what could not be used, and why; nothing if there is nothing to say."""
    if skipped:
        # Names that are not UTF-8 are a reason to be skipped, so they must be writable somehow.
        with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            writer = csv.writer(file)
            writer.writerow(Skipped._fields)
            writer.writerows(skipped)
            file.flush()
            os.fsync(file.fileno())
