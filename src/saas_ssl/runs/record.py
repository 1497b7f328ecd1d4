"""run.json: what was asked for, with what it was computed, and the results."""

import json
import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from saas_ssl.runs.checkpoints import write_safely
from saas_ssl.runs.files import RUN_FILE


def complete(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with the versions and the hardware that produce it."""
    return {**record, "versions": versions(), "hardware": hardware()}


def write_run(directory: Path, record: Mapping[str, Any]) -> None:
    """Write run.json."""
    write_safely(directory / RUN_FILE, (json.dumps(record, indent=2) + "\n").encode())


def read_run(directory: Path) -> dict[str, Any]:
    """What run.json says."""
    record: dict[str, Any] = json.loads((directory / RUN_FILE).read_text(encoding="utf-8"))
    return record


def versions() -> dict[str, str]:
    """Of Python and of the packages that decide the numbers."""
    return {"python": platform.python_version(), **package_versions()}


def package_versions() -> dict[str, str]:
    """Of the packages that decide the numbers."""
    return {name: version(name) for name in ("saas-ssl", "torch", "numpy", "pillow")}


def hardware() -> dict[str, Any]:
    """What ran it, without anything that names the machine or its user."""
    return {
        "platform": f"{sys.platform} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
