"""Arrays of images or of features, as files and notebooks hold them -> rows of one form."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saas_ssl.algorithm.blocks import in_blocks

_CHANNELS = (1, 3)


def as_rows(x: NDArray[Any] | Tensor) -> Tensor:
    """Images as uint8 (N, C, H, W), or features as float32 (N, D)."""
    if not isinstance(x, Tensor):
        if x.dtype.kind not in "buif":
            raise ValueError(f"x must hold numbers, not {x.dtype}")
        if x.dtype.kind in "ui" and x.dtype != np.uint8:
            x = x.astype(np.int64)
        if x.dtype == np.longdouble:
            x = x.astype(np.float64)
        x = torch.from_numpy(
            np.require(x, requirements=["C", "W"]).astype(x.dtype.newbyteorder("="), copy=False)
        )
    if x.ndim == 2:
        return x.float()
    if x.ndim == 3:
        return _bytes(x).unsqueeze(1)
    if x.ndim == 4 and x.shape[1] in _CHANNELS:
        return _bytes(x)
    if x.ndim == 4 and x.shape[3] in _CHANNELS:
        return _bytes(x).permute(0, 3, 1, 2).contiguous()
    raise ValueError(
        "x must be features (N, D) or images (N, H, W), (N, H, W, C) or (N, C, H, W) of one or "
        f"three channels, but its shape is {tuple(x.shape)}"
    )


def channels_first(x: Tensor) -> Tensor:
    """Images (N, H, W), (N, H, W, C) or (N, C, H, W) as (N, C, H, W), in the same memory.

    Where neither side of the image has one or three channels, the shorter axis has them.
    """
    if x.ndim == 3:
        return x.unsqueeze(1)
    first, last = x.shape[1] in _CHANNELS, x.shape[3] in _CHANNELS
    if first or (not last and x.shape[1] <= x.shape[3]):
        return x
    return x.permute(0, 3, 1, 2)


def pixel_range(x: Tensor) -> tuple[float, float]:
    """(Black, white) of images of any numbers: of the type, or of the numbers that there are."""
    if x.dtype == torch.uint8:
        return 0.0, 255.0
    low, high = float(x.min()), float(x.max())
    if low >= 0.0 and high <= 1.0:
        return 0.0, 1.0
    return low, high if high > low else low + 1.0


def as_pixels(x: Tensor, black: float, white: float) -> Tensor:
    """Images whose numbers mean the same: uint8 as they are, others from 0 to 1 in float32."""
    if x.dtype == torch.uint8 and (black, white) == (0.0, 255.0):
        return x
    pixels = torch.empty(x.shape)
    for numbers, target in zip(in_blocks(x), in_blocks(pixels), strict=True):
        target.copy_(((numbers.double() - black) / (white - black)).clamp_(0.0, 1.0))
    return pixels


def as_tensor(array: NDArray[Any]) -> Tensor:
    """The same memory as a tensor, even if it is read-only: rows are never written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)


def as_labels(
    y: NDArray[Any] | None, n: int, classes: Sequence[str] | None = None
) -> list[str | None]:
    """Names of the labels; -1, NaN and empty text mean unlabelled."""
    if y is None:
        return [None] * n
    y = y.squeeze(1) if y.shape == (n, 1) else y
    if y.shape != (n,):
        raise ValueError(f"y must have one label for each of the {n} rows, not shape {y.shape}")
    if y.dtype.kind in "US":
        texts = [text.decode() if isinstance(text, bytes) else text for text in y.tolist()]
        return [text.strip() or None for text in texts]
    if y.dtype.kind not in "buif":
        raise ValueError(f"y must hold numbers or text, not {y.dtype}")
    numbers = np.where(np.isnan(y), -1, y) if y.dtype.kind == "f" else y
    with np.errstate(invalid="ignore"):  # of infinite labels, which are refused here
        whole = numbers.astype(np.int64)
    if (whole != numbers).any() or (whole < -1).any():
        raise ValueError("y must hold whole numbers from 0 on, or -1 for unlabelled")
    if classes is not None and len(whole) and whole.max() >= len(classes):
        raise ValueError(f"y has the label {whole.max()}, but there are {len(classes)} classes")
    names = {k: str(k) if classes is None else classes[k] for k in set(whole.tolist()) - {-1}}
    return [names.get(k) for k in whole.tolist()]


def _bytes(x: Tensor) -> Tensor:
    """Pixels as uint8."""
    if x.dtype == torch.uint8:
        return x
    if x.dtype == torch.bool:
        return x.to(torch.uint8) * 255
    if not x.is_floating_point() or not ((x >= 0) & (x <= 1)).all():  # NaN fails both
        raise ValueError("images must be uint8, or floating-point numbers from 0 to 1")
    return (x * 255).round().to(torch.uint8)
