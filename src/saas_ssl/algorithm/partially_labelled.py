"""The one form in which data reach the algorithm."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from saas_ssl.algorithm.blocks import in_blocks

UNLABELLED = -1
SET_ASIDE = -2


@dataclass(frozen=True)
class PartiallyLabelled:
    """N rows, each with a label in 0..K-1, or -1 for unlabelled.

    A row of -2 is set aside and takes part in nothing: parts of large data share their rows.
    """

    x: Tensor  # uint8 images (N, C, H, W), or floating-point features (N, D)
    y: Tensor  # int64 (N,)
    classes: Sequence[str]  # K names
    ids: Sequence[str]  # N names of rows: a path, or the row's number
    repeats: Tensor | None = None  # int64 (N,): how often phase one has a labelled row; none: once

    def __post_init__(self) -> None:
        if not isinstance(self.x, Tensor) or not isinstance(self.y, Tensor):
            raise ValueError("x and y must be torch tensors: torch.from_numpy makes them of arrays")
        if self.x.ndim not in (2, 4):
            raise ValueError(
                "x must be images (N, C, H, W) or features (N, D), "
                f"but its shape is {tuple(self.x.shape)}"
            )
        if self.x.ndim == 2 and not self.x.is_floating_point():
            raise ValueError(f"features must be floating-point numbers, not {self.x.dtype}")
        if self.x.ndim == 4 and not (self.x.dtype == torch.uint8 or self.x.is_floating_point()):
            raise ValueError(f"images must be uint8, or floats from 0 to 1, not {self.x.dtype}")
        if self.y.dtype != torch.int64 or self.y.shape != self.x.shape[:1]:
            raise ValueError(
                f"y must hold one int64 label for each of the {len(self.x)} rows of x, "
                f"but it is {self.y.dtype} of shape {tuple(self.y.shape)}"
            )
        if len(self.ids) != len(self.x):
            raise ValueError(f"there are {len(self.x)} rows but {len(self.ids)} ids")
        if len(self.classes) < 2:
            raise ValueError(
                f"there must be at least two classes to tell apart, not {len(self.classes)}"
            )
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("two classes have the same name")
        outside = (self.y < SET_ASIDE) | (self.y >= len(self.classes))
        if outside.any():
            row = int(outside.nonzero()[0])
            raise ValueError(
                f"row {row} ({self.ids[row]}) has label {int(self.y[row])}, but labels must be "
                f"0 to {len(self.classes) - 1}, or {UNLABELLED} for unlabelled"
            )
        if self.repeats is not None and (
            self.repeats.dtype != torch.int64
            or self.repeats.shape != self.y.shape
            or (self.repeats < 1).any()
        ):
            raise ValueError("repeats must hold one int64 number of at least 1 for each row")
        if self.x.is_floating_point():
            rows = torch.cat(
                [block.flatten(1).isfinite().all(dim=1) for block in in_blocks(self.x)]
            )
            if not rows.all():
                row = int((~rows).nonzero()[0])
                raise ValueError(f"row {row} ({self.ids[row]}) of x has NaN or infinite values")
            if self.x.ndim == 4 and any(b.min() < 0 or b.max() > 1 for b in in_blocks(self.x)):
                raise ValueError("images of floating-point numbers must lie between 0 and 1")

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.classes)

    @property
    def labelled_rows(self) -> Tensor:
        """The rows with a label, in order."""
        return (self.y >= 0).nonzero().squeeze(1)

    @property
    def labelled_stream(self) -> Tensor:
        """The labelled rows as a pass of phase one has them: some may come more than once."""
        rows = self.labelled_rows
        return rows if self.repeats is None else rows.repeat_interleave(self.repeats[rows])

    @property
    def unlabelled_rows(self) -> Tensor:
        """The rows without a label, in order: row i of P_u belongs to the i-th of them."""
        return (self.y == UNLABELLED).nonzero().squeeze(1)

    @property
    def rows(self) -> Tensor:
        """The rows that are not set aside, in order."""
        return (self.y != SET_ASIDE).nonzero().squeeze(1)

    def take(self, rows: Tensor) -> "PartiallyLabelled":
        """The value that holds only these rows."""
        return PartiallyLabelled(
            self.x[rows], self.y[rows], self.classes, [self.ids[row] for row in rows.tolist()]
        )

    def with_labels(self, y: Tensor) -> "PartiallyLabelled":
        """The same rows with other labels, each of them once."""
        return replace(self, y=y, repeats=None)

    def fingerprint(self) -> str:
        """SHA-256 of rows, labels, classes and ids: equal exactly when the data are."""
        digest = hashlib.sha256(repr((tuple(self.x.shape), str(self.x.dtype))).encode())
        for block in in_blocks(self.x):
            digest.update(block.contiguous().numpy().tobytes())
        digest.update(self.y.numpy().tobytes())
        digest.update(repr((list(self.classes), list(self.ids))).encode())
        return digest.hexdigest()
