"""TensorBoard's view of a run, for --log tensorboard."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled

UNCERTAIN = "most uncertain rows"
_SIDE = 4  # of the grid of images


class Board:
    """TensorBoard's view of a run: scalars of both phases and the images one is least sure of.

    A run that continues opens a board on the same folder and does some steps again. What the
    folder already holds is kept and not written a second time: torch's `purge_step` would hide the
    steps of all parts, but each part counts its own.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter  # slow, and an extra
        except ImportError:
            raise ValueError(
                "--log tensorboard needs the package tensorboard: "
                "pip install 'saas-ssl[tensorboard]'"
            ) from None
        self._last = _last_steps(folder)
        self._writer = SummaryWriter(str(folder))

    def outer(self, fields: Mapping[str, Any], P_u: Tensor, data: PartiallyLabelled) -> None:
        """An outer iteration has ended: its numbers, and the rows that P_u is least sure of."""
        m = fields["outer"]
        self._scalars("phase one", fields, m)
        if data.x.ndim == 4 and m > self._last.get(UNCERTAIN, -1):
            most = torch.special.entr(P_u).sum(dim=1).topk(min(_SIDE**2, len(P_u))).indices.cpu()
            rows = data.unlabelled_rows[most]
            ids = [data.ids[row] for row in rows.tolist()]
            self._writer.add_text(UNCERTAIN, _described(ids, P_u[most.to(P_u.device)], data), m)
            self._writer.add_image(UNCERTAIN, _grid(data.x[rows]), m)
        self._writer.flush()  # a run may be killed at any time

    def epoch(self, part: str, fields: Mapping[str, Any]) -> None:
        """An epoch of the baseline ("supervised") or of phase two ("two") has ended."""
        self._scalars("phase two" if part == "two" else part, fields, fields["epoch"])
        self._writer.flush()

    def close(self) -> None:
        """Nothing more is to come."""
        self._writer.close()

    def _scalars(self, part: str, fields: Mapping[str, Any], step: int) -> None:
        for name, value in fields.items():
            tag = f"{part}/{name}"
            is_number = isinstance(value, int | float) and name not in ("outer", "epoch")
            if is_number and step > self._last.get(tag, -1):
                self._writer.add_scalar(tag, value, step)


def _last_steps(folder: Path) -> dict[str, int]:
    """The last step of each tag that the folder holds."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    if not folder.is_dir():
        return {}
    events = EventAccumulator(str(folder), {"scalars": 1, "images": 1}).Reload()
    scalars = {tag: events.Scalars(tag)[-1].step for tag in events.Tags()["scalars"]}
    images = {tag: events.Images(tag)[-1].step for tag in events.Tags()["images"]}
    return scalars | images


def _grid(x: Tensor) -> Tensor:
    """At most 16 images (n, C, H, W) as one (C, H', W'), row by row with white lines between."""
    x = x[:, :3] if x.shape[1] >= 3 else x[:, :1]  # what can be shown of other channels
    if x.is_floating_point():
        x = (255 * x).round().to(torch.uint8)
    x = pad(x, (1, 1, 1, 1, 0, 0, 0, _SIDE**2 - len(x)), value=255)
    return torch.cat([torch.cat(list(row), dim=2) for row in x.split(_SIDE)], dim=1)


def _described(ids: list[str], P_u: Tensor, data: PartiallyLabelled) -> str:
    """Each row's id and its two most probable classes, indented so that Markdown leaves it be."""
    top = P_u.topk(2)
    return "\n".join(
        f"    {id_}: {data.classes[first]} {p:.3f}, {data.classes[second]} {q:.3f}"
        for id_, (first, second), (p, q) in zip(
            ids, top.indices.tolist(), top.values.tolist(), strict=True
        )
    )
