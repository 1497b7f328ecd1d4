"""A fitted estimator on the disk and back: JSON and safetensors, never a pickle."""

import shutil
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, StrictBool, StrictFloat, StrictInt, StrictStr
from pydantic import ValidationError as Invalid
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from saas_ssl.runs.checkpoints import write_safely
from saas_ssl.runs.directory import new_folder_beside
from saas_ssl.runs.files import (
    ESTIMATOR_FILE,
    MODEL_FILE,
    POSTERIOR_FILE,
    WEIGHTS_FILE,
    save_tensors,
)
from saas_ssl.runs.model import Model, load, save
from saas_ssl.training.presets import Settings
from saas_ssl.vision.networks import NetworkFactory

_FILES = frozenset({ESTIMATOR_FILE, MODEL_FILE, WEIGHTS_FILE, POSTERIOR_FILE})
_KINDS = {"b": bool, "i": int, "u": int, "f": float, "U": str}

Plain = StrictBool | StrictInt | StrictFloat | StrictStr | None


class Record(BaseModel):
    """estimator.json: what was learned, but for tensors, and the parameters."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    parameters: dict[str, Plain]
    classes: list[StrictBool | StrictInt | StrictFloat | StrictStr]
    dtype: str  # of the classes, in numpy's words
    settings: Settings
    n_iter: int
    history: list[dict[str, Plain]]
    pixel_range: tuple[float, float] | None

    def typed_classes(self) -> NDArray[Any]:
        """The classes as they were in y."""
        dtype = np.dtype(self.dtype)
        if not all(type(label) is _KINDS[dtype.kind] for label in self.classes):
            raise ValueError("labels that are not of their type")
        return np.array(self.classes, dtype)


def write_estimator(
    path: Path, record: Record, model: Model, posterior: Tensor, overwrite: bool
) -> None:
    """Write a directory, whole or not at all; what no estimator has written is never removed."""
    if path.exists() or path.is_symlink():
        if not overwrite:
            raise ValueError(f"{path} exists: choose another path, or give overwrite=True")
        is_ours = path.is_dir() and not path.is_symlink() and (path / ESTIMATOR_FILE).is_file()
        if not is_ours or {file.name for file in path.iterdir()} - _FILES:
            raise ValueError(f"{path} is not just a saved estimator, so it is not overwritten")
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    partial, replaced = new_folder_beside(path, "partial"), None
    try:
        save(model, partial)
        save_tensors(partial / POSTERIOR_FILE, {"label_distributions": posterior})
        text = record.model_dump_json(indent=1) + "\n"
        write_safely(partial / ESTIMATOR_FILE, text.encode())
        if path.exists():
            replaced = new_folder_beside(path, "replaced")
            path.rename(replaced)  # onto an empty folder
        partial.rename(path)
    except BaseException:
        if replaced is not None and not path.exists():
            replaced.rename(path)
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if replaced is not None:
        shutil.rmtree(replaced, ignore_errors=True)


def read_estimator(path: Path, network: NetworkFactory | None) -> tuple[Record, Model, Tensor]:
    """(What was learned, the classifier, the posterior of every row) of a saved estimator.

    `network` is the factory of one that was no network of ours.
    """
    if not (path / ESTIMATOR_FILE).is_file():
        raise ValueError(f"{path} has no {ESTIMATOR_FILE}: it is not a saved estimator")
    model = load(path, network)
    try:
        record = Record.model_validate_json((path / ESTIMATOR_FILE).read_bytes())
        posterior = load_file(path / POSTERIOR_FILE)["label_distributions"].float()
        K = len(model.classes)
        if (len(record.typed_classes()), *posterior.shape[1:]) != (K, K):
            raise ValueError("the files do not fit together")
    except (OSError, SafetensorError, Invalid, ValueError, TypeError, LookupError):
        raise ValueError(
            f"{path} holds an estimator that is broken, or of another version"
        ) from None
    return record, model, posterior
