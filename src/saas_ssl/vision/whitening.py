"""ZCA whitening, for the conv-large protocol."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from saas_ssl.algorithm.blocks import in_blocks

Total = Callable[[Tensor], Tensor]
"""What this process summed over its rows -> the sum over those of all processes."""


def own_total(x: Tensor) -> Tensor:
    """All rows are here."""
    return x


@dataclass(frozen=True)
class Zca:
    """x -> (x - μ) W with W = U (S + ε)^(-1/2) Uᵀ, where U S Uᵀ is the covariance of the pixels.

    Images are whitened as flat vectors of pixels in [0, 1] and keep their shape.
    """

    mean: Tensor  # (D,)
    whiten: Tensor  # (D, D)
    colour: Tensor  # (D, D), the inverse

    def to(self, device: torch.device) -> "Zca":
        """The same on another device."""
        return Zca(self.mean.to(device), self.whiten.to(device), self.colour.to(device))

    def apply(self, x: Tensor) -> Tensor:
        """Whiten images (uint8, or floats in [0, 1]) or features, by blocks of rows."""
        return torch.cat([(_flat(block) - self.mean) @ self.whiten for block in in_blocks(x)]).view(
            x.shape
        )

    def invert(self, x: Tensor) -> Tensor:
        """Whitened images -> pixels in [0, 1]."""
        return (x.flatten(1) @ self.colour + self.mean).view(x.shape)


def fit_zca(
    x: Tensor, rows: Tensor | None = None, epsilon: float | None = None, total: Total = own_total
) -> Zca:
    """Fit on the training rows only.

    ε is 1e-6 unless given, VAT's setting for pixels in [0, 1]; but of fewer than two rows a pixel
    it is a tenth of the mean variance. So few do not show all directions, and what new rows have in
    the others would be blown up a thousandfold.
    """
    n, D = int(total(torch.tensor(len(x) if rows is None else len(rows)))), x[0].numel()  # noqa: N806
    mean, covariance = (torch.zeros(shape, dtype=torch.float64) for shape in ((D,), (D, D)))
    for block in in_blocks(x, rows):
        mean += _flat(block).double().sum(dim=0) / n
    mean = total(mean)
    for block in in_blocks(x, rows):
        centred = _flat(block) - mean.float()
        covariance += (centred.T @ centred).double()
    S, U = torch.linalg.eigh(total(covariance) / n)  # noqa: N806
    if epsilon is None:
        epsilon = 1e-6 if n >= 2 * D else max(1e-6, 0.1 * S.mean().item())
    scale = (S.clamp(min=0.0) + epsilon).sqrt()
    return Zca(mean.float(), (U / scale @ U.T).float(), (U * scale @ U.T).float())


def _flat(x: Tensor) -> Tensor:
    x = x.flatten(1)
    return x.float() / 255.0 if x.dtype == torch.uint8 else x.float()
