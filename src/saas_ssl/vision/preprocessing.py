"""Rows as stored -> what the network sees when nothing is augmented."""

from dataclasses import dataclass

import torch
from torch import Tensor

from saas_ssl.algorithm.blocks import in_blocks
from saas_ssl.vision.whitening import Total, Zca, fit_zca, own_total


@dataclass(frozen=True)
class Preprocessing:
    """Rows as stored -> what the network sees: images in [0, 1], maybe whitened, standardised.

    Whitening comes before augmentation and standardisation after it, so they are two steps. Rows
    move to the device of `mean`.
    """

    mean: Tensor  # (C, 1, 1) for images, (D,) for features
    std: Tensor
    zca: Zca | None = None

    def load(self, x: Tensor) -> Tensor:
        """Rows as stored -> floats ready for augmentation, images in [0, 1] or whitened."""
        if self.mean.is_cuda and not x.is_cuda:
            x = x.pin_memory()  # or the copy would wait for the GPU
        x = x.to(self.mean.device, non_blocking=True)
        if x.dtype == torch.uint8:
            x = x.to(self.mean.dtype).div_(255.0)
        return x if self.zca is None else self.zca.apply(x)

    def to(self, device: torch.device) -> "Preprocessing":
        """The same on another device."""
        zca = None if self.zca is None else self.zca.to(device)
        return Preprocessing(self.mean.to(device), self.std.to(device), zca)

    def standardise(self, x: Tensor) -> Tensor:
        """(x - mean) / std in single precision, images in channels_last order."""
        x = ((x - self.mean) / self.std).float()
        return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x

    def __call__(self, x: Tensor) -> Tensor:
        """What the network sees when nothing is augmented."""
        return self.standardise(self.load(x))


def fit_preprocessing(
    x: Tensor, whiten: bool = False, rows: Tensor | None = None, total: Total = own_total
) -> Preprocessing:
    """Mean and standard deviation per channel of images or per feature, of all rows or of some.

    `total` adds up what several processes sum over their rows.
    """
    if whiten:
        return Preprocessing(torch.zeros(()), torch.ones(()), fit_zca(x, rows, total=total))
    over, shape = ((0, 2, 3), (-1, 1, 1)) if x.ndim == 4 else ((0,), (-1,))
    scale = 255.0 if x.dtype == torch.uint8 else 1.0
    n = int(total(torch.tensor(len(x) if rows is None else len(rows)))) * x[0, 0].numel()
    mean, square = (torch.zeros(x.shape[1], dtype=torch.float64) for _ in range(2))
    for block in in_blocks(x, rows):
        mean += (block.double() / scale).sum(dim=over) / n
    mean = total(mean)
    for block in in_blocks(x, rows):  # a second pass: squares about the mean do not cancel
        square += (block.double() / scale - mean.view(shape)).square().sum(dim=over) / n
    std = total(square).sqrt()
    std[std <= 1e-12 * mean.abs()] = 1.0  # a channel or feature that never changes
    dtype = torch.float32 if x.dtype == torch.uint8 else x.dtype
    return Preprocessing(mean.view(shape).to(dtype), std.view(shape).to(dtype))
