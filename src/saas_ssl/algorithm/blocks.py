"""Large tensors by blocks of rows, so that extra memory does not grow; many by their names."""

from collections.abc import Iterator, Mapping

from torch import Tensor

_ELEMENTS = 1 << 20


def in_blocks(x: Tensor, rows: Tensor | None = None) -> Iterator[Tensor]:
    """Blocks of rows of x, all of them (views) or some (copies), of about a million elements."""
    size = max(1, _ELEMENTS // max(1, x[:1].numel()))
    if rows is None:
        yield from x.split(size)
    else:
        yield from (x[block] for block in rows.split(size))


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors with names that begin so."""
    return {prefix + name: tensor for name, tensor in tensors.items()}
