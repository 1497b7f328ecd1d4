"""Features of images by a network that is already trained: `embed`."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from saas_ssl.data.arrays import as_tensor, channels_first
from saas_ssl.images.form import LARGEST_SIDE, Form
from saas_ssl.images.pool import decoded, enough_workers, in_chunks
from saas_ssl.sources.reading import brought_to


def embed(
    images: Any,
    module: nn.Module,
    *,
    image_size: int | None = None,
    colour: bool | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    batch_size: int = 256,
) -> NDArray[np.float32]:
    """(N, D) features: what a trained network without its last layer makes of images, by batches.

    `images` are an array or tensor (N, H, W), (N, H, W, C) or (N, C, H, W), or a list of files or
    PIL images, which are decoded by all cores and never all in memory. Bytes become numbers from 0
    to 1; floating-point numbers stay as they are. `image_size` makes squares of that side, and
    `colour` three channels of grey images (false: one of colours). `mean` and `std` of each channel
    standardise what the module sees, as most pretrained networks want. The module works where its
    weights are, in eval mode, and is left as it was. It gives (B, D), or (B, D, H, W), which is
    averaged over the pixels.
    """
    if len(images) == 0:
        raise ValueError("there are no images to embed")
    _check(image_size, mean, std, batch_size)
    weights = next(iter([*module.parameters(), *module.buffers()]), torch.empty(0))
    parts, was_training = [], module.training
    module.eval()
    try:
        with torch.no_grad():
            for batch in _batches(images, image_size, colour, batch_size):
                x = batch.to(weights.device, weights.dtype if weights.is_floating_point() else None)
                x = x / 255 if batch.dtype == torch.uint8 else x
                parts.append(_flat(module(_standardised(x, mean, std)), len(x)))
    finally:
        module.train(was_training)
    return torch.cat(parts).numpy()


def _check(
    image_size: int | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    batch_size: int,
) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    if image_size is not None and not 1 <= image_size <= LARGEST_SIDE:
        raise ValueError(f"image_size must be 1 to {LARGEST_SIDE}, not {image_size}")
    if (mean is None) != (std is None):
        raise ValueError("give both mean and std, or neither")
    if std is not None and not all(number > 0 for number in std):
        raise ValueError("std must be above 0")


def _batches(
    images: Any, image_size: int | None, colour: bool | None, batch_size: int
) -> Iterator[Tensor]:
    """(B, C, H, W) uint8 or floating-point images in their order."""
    if isinstance(images, np.ndarray):
        images = as_tensor(images)
    if not isinstance(images, Tensor):
        yield from _decoded(list(images), image_size, colour, batch_size)
        return
    if images.ndim not in (3, 4):
        raise ValueError(
            "images must be (N, H, W), (N, H, W, C) or (N, C, H, W), but their shape is "
            f"{tuple(images.shape)}"
        )
    x = channels_first(images.detach())
    if x.dtype != torch.uint8 and not x.is_floating_point():
        raise ValueError(f"images must be uint8 or floating-point numbers, not {x.dtype}")
    height, width = (image_size, image_size) if image_size else (x.shape[2], x.shape[3])
    channels = x.shape[1] if colour is None else 3 if colour else 1
    form = Form(height, width, channels)
    if x.shape[1:] != (channels, height, width) and x.is_floating_point():
        raise ValueError("floating-point images keep their size and channels: give uint8 instead")
    for block in x.split(batch_size):
        yield brought_to(block.cpu(), form) if x.dtype == torch.uint8 else block


def _decoded(
    files: list[Any], image_size: int | None, colour: bool | None, batch_size: int
) -> Iterator[Tensor]:
    if image_size is None:
        raise ValueError("files differ in size: give image_size, the side of what the module takes")
    form, done = Form(image_size, image_size, 1 if colour is False else 3), 0
    for part in decoded(in_chunks(files)(), form, enough_workers(len(files))):
        if part.bad:
            place, reason = next(iter(part.bad.items()))
            raise ValueError(f"image {done + place} ({files[done + place]}): {reason}")
        yield from torch.from_numpy(part.pixels).split(batch_size)
        done += len(part.pixels)


def _standardised(x: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None) -> Tensor:
    if mean is None or std is None:
        return x
    if not len(mean) == len(std) == x.shape[1]:
        raise ValueError(
            f"mean and std must have a number for each of the {x.shape[1]} channels, "
            f"not {len(mean)} and {len(std)}"
        )
    shift, scale = (torch.tensor(numbers).to(x).view(-1, 1, 1) for numbers in (mean, std))
    return (x - shift) / scale


def _flat(features: Any, rows: int) -> Tensor:
    """(B, D) on the CPU, in single precision."""
    if isinstance(features, Tensor) and features.ndim == 4 and len(features) == rows:
        features = features.mean(dim=(2, 3))
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != rows:
        shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(
            f"the module gives {shape} for {rows} images, but it must give a tensor with a row of "
            "features for each: wrap it in a module that does"
        )
    return features.float().cpu()
