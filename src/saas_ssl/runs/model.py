"""A trained classifier on the disk and back: model.safetensors and model.json, never a pickle."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from saas_ssl.algorithm.blocks import below
from saas_ssl.algorithm.network import unwrapped
from saas_ssl.data.arrays import as_rows
from saas_ssl.images.form import LARGEST_SIDE, Form
from saas_ssl.images.pool import decoded, enough_workers, in_chunks
from saas_ssl.runs.checkpoints import write_safely
from saas_ssl.runs.files import MODEL_FILE, WEIGHTS_FILE, save_tensors
from saas_ssl.sources.reading import brought_to
from saas_ssl.sources.source import Source, in_order
from saas_ssl.training.outputs import predict
from saas_ssl.vision.augment import Preprocessing
from saas_ssl.vision.networks import NETWORKS, NetworkFactory, build, named_factory
from saas_ssl.vision.whitening import Zca

_NETWORK, _PREPROCESSING, _ZCA = "network.", "preprocessing.", "zca."
_ROWS_AT_ONCE = 512


class _Description(BaseModel):
    """model.json: all that the weights do not tell."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    # By name, so that nothing is imported; none: the reader must have the factory.
    network: Literal[tuple(NETWORKS)] | None  # type: ignore[valid-type]
    width: PositiveInt | None
    in_shape: tuple[PositiveInt, ...]
    classes: list[str] = Field(min_length=2)
    image: dict[str, PositiveInt] | None
    features: list[str] | None


@dataclass(frozen=True)
class Model:
    """A classifier with everything that it needs to see a row as it did in training."""

    network: nn.Module
    name: str | None  # of the network; none: it is no network of ours
    width: int | None
    in_shape: tuple[int, ...]
    classes: Sequence[str]
    preprocessing: Preprocessing
    form: Form | None  # what images are brought to; none: features
    features: Sequence[str] | None = None  # their names, if they have any

    def predict_proba(self, rows: Any) -> NDArray[np.float32]:
        """(N, K) probabilities, not calibrated, in the order of `classes`.

        `rows` are images as an array or tensor (N, H, W), (N, H, W, C) or (N, C, H, W), uint8 or
        floats from 0 to 1, of any size; or a list of files or PIL images; or features (N, D).
        """
        if isinstance(rows, Tensor | np.ndarray):
            source = Source([""] * len(rows), [None] * len(rows), self.classes, as_rows(rows))
        else:
            images = list(rows)
            source = Source(
                [str(row) for row in images], [None] * len(images), self.classes, in_chunks(images)
            )
        parts = [np.empty((0, len(self.classes)), np.float32)]
        for chunk, bad in self.stream(source):
            if bad:
                row, reason = next(iter(bad.items()))
                raise ValueError(f"image {row} ({source.ids[row]}): {reason}")
            parts.append(chunk.numpy())
        return np.concatenate(parts)

    def predict(self, rows: Any) -> list[str]:
        """The most probable class of each row."""
        return [self.classes[k] for k in self.predict_proba(rows).argmax(axis=1)]

    def stream(self, source: Source) -> Iterator[tuple[Tensor, dict[int, str]]]:
        """Chunk by chunk: probabilities of the rows that can be used, and why others cannot.

        The reasons are by the row's number in the source. Data of another kind are refused at once.
        """
        return self._scored(self._rows(source))

    def _scored(
        self, parts: Iterator[tuple[Tensor, dict[int, str]]]
    ) -> Iterator[tuple[Tensor, dict[int, str]]]:
        done, none = 0, torch.empty(0, len(self.classes))
        for x, bad in parts:
            f = predict(self.network, self.preprocessing, x) if len(x) else none
            yield f, {done + place: reason for place, reason in bad.items()}
            done += len(x) + len(bad)

    def _rows(self, source: Source) -> Iterator[tuple[Tensor, dict[int, str]]]:
        rows = source.rows
        if self.form is None:
            if not isinstance(rows, Tensor) or rows.ndim != 2:
                raise ValueError("this model takes features, but these data are images")
            ordered = in_order(rows, source.features, self.features, self.in_shape[0])
            return map(_finite, ordered.split(_ROWS_AT_ONCE))
        if not isinstance(rows, Tensor):
            parts = decoded(rows(), self.form, enough_workers(len(source.ids)))
            return ((torch.from_numpy(part.pixels), part.bad) for part in parts)
        if rows.ndim == 2:
            raise ValueError("this model takes images, but these data are features")
        return ((brought_to(block, self.form), {}) for block in rows.split(_ROWS_AT_ONCE))


def _finite(features: Tensor) -> tuple[Tensor, dict[int, str]]:
    """The rows without NaN or infinite values, and the places of the others."""
    good = features.isfinite().all(dim=1)
    bad = (~good).nonzero().squeeze(1).tolist()
    return features[good], dict.fromkeys(bad, "it has NaN or infinite values")


def save(model: Model, directory: Path) -> None:
    """Write model.safetensors and model.json."""
    tensors = {
        f"{_NETWORK}{name}": value for name, value in unwrapped(model.network).state_dict().items()
    }
    pre = model.preprocessing
    tensors |= {f"{_PREPROCESSING}mean": pre.mean, f"{_PREPROCESSING}std": pre.std}
    if pre.zca is not None:
        tensors |= {f"{_PREPROCESSING}{_ZCA}{n}": t for n, t in vars(pre.zca).items()}
    save_tensors(directory / WEIGHTS_FILE, tensors)
    description = _Description(
        network=model.name,
        width=model.width,
        in_shape=model.in_shape,
        classes=list(model.classes),
        image=None if model.form is None else asdict(model.form),
        features=None if model.features is None else list(model.features),
    )
    text = json.dumps(description.model_dump(), indent=2, ensure_ascii=False) + "\n"
    write_safely(directory / MODEL_FILE, text.encode())


def load(run: str | Path, network: NetworkFactory | None = None) -> Model:
    """The classifier of a run directory. Nothing in the directory can make this run code.

    `network` is the factory of one that was no network of ours.
    """
    directory, broken = Path(run), _broken(run)
    told = _described(directory)
    if told.network is None and network is None:
        raise ValueError(f"{run} has a network that is none of ours: give its factory as `network`")
    try:
        form = None if told.image is None else Form(**told.image)
        if form is not None and (
            told.in_shape != (form.channels, form.height, form.width)
            or max(told.in_shape) > LARGEST_SIDE
        ):
            raise ValueError("images of an impossible size")
        tensors = load_file(directory / WEIGHTS_FILE)
        w = _network(told, network)
        w.load_state_dict(_single(below(_NETWORK, tensors)), assign=True)
        preprocessing = _preprocessing(below(_PREPROCESSING, tensors))
        row = torch.zeros((1, *told.in_shape), dtype=torch.float32 if form is None else torch.uint8)
        if predict(w, preprocessing, row).shape != (1, len(told.classes)):
            raise ValueError("the tensors do not fit together")
    except (SafetensorError, RuntimeError, ValueError, TypeError, KeyError):
        raise broken from None
    w = w.eval().requires_grad_(False)
    w = w.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Model(
        w,
        told.network,
        told.width,
        told.in_shape,
        told.classes,
        preprocessing,
        form,
        told.features,
    )


def form_of(run: Path) -> Form | None:
    """What the images of a run were brought to; none: features."""
    image = _described(run).image
    try:
        return None if image is None else Form(**image)
    except TypeError:
        raise _broken(run) from None


def _described(run: Path) -> _Description:
    if not (run / MODEL_FILE).is_file() or not (run / WEIGHTS_FILE).is_file():
        raise ValueError(f"{run} has no {MODEL_FILE} and {WEIGHTS_FILE}: it is not a finished run")
    try:
        return _Description.model_validate_json((run / MODEL_FILE).read_bytes())
    except ValueError:
        raise _broken(run) from None


def _broken(run: str | Path) -> ValueError:
    return ValueError(f"{run} holds a model that is broken, or of another version")


def _network(told: _Description, factory: NetworkFactory | None) -> nn.Module:
    """A network with any weights. Ours take no memory, whatever sizes the description claims."""
    in_shape, n_classes = told.in_shape, len(told.classes)
    if factory is not None and told.network is None:
        return build(factory, in_shape, n_classes, torch.Generator())
    with torch.device("meta"):
        return named_factory(str(told.network), told.width)(in_shape, n_classes, torch.Generator())


def _single(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same in single precision, in which networks compute."""
    return {name: t.float() if t.is_floating_point() else t for name, t in tensors.items()}


def _preprocessing(tensors: dict[str, Tensor]) -> Preprocessing:
    zca = below(_ZCA, tensors)
    return Preprocessing(tensors["mean"], tensors["std"], Zca(**zca) if zca else None)
