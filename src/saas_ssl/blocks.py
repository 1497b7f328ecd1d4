"""Large tensors by blocks of rows: extra memory that does not grow with the number of rows."""

from torch import Tensor

_ELEMENTS = 1 << 22


def in_blocks(x: Tensor) -> tuple[Tensor, ...]:
    """Views of x, each of whole rows and of about four million elements."""
    per_row = max(1, x[:1].numel())
    blocks: tuple[Tensor, ...] = x.split(max(1, _ELEMENTS // per_row))
    return blocks
