"""Large tensors by blocks of rows: extra memory that does not grow with the number of rows."""

from collections.abc import Iterator

from torch import Tensor

_ELEMENTS = 1 << 20


def in_blocks(x: Tensor, rows: Tensor | None = None) -> Iterator[Tensor]:
    """Blocks of rows of x, all of them (views) or some (copies), of about a million elements."""
    size = max(1, _ELEMENTS // max(1, x[:1].numel()))
    if rows is None:
        yield from x.split(size)
    else:
        yield from (x[block] for block in rows.split(size))
