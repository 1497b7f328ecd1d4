import io
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from saas_ssl.algorithm.partially_labelled import UNLABELLED, PartiallyLabelled
from saas_ssl.progress.board import UNCERTAIN, Board

N, K = 60, 3


def images(x: Tensor) -> PartiallyLabelled:
    """Every third row has a label, so that rows of P_u and of the data differ."""
    rows = torch.arange(len(x))
    y = torch.where(rows % 3 == 0, rows % K, UNLABELLED)
    names = [f"photos/{row}_a|b.png" for row in rows.tolist()]
    return PartiallyLabelled(x, y, ["cat", "dog", "eel"], names)


def grey(value_of_row: Tensor) -> Tensor:
    """Images of one colour each, 5 x 6 pixels."""
    return value_of_row.to(torch.uint8)[:, None, None, None].expand(-1, 1, 5, 6).clone()


def posterior(sure: Tensor) -> Tensor:
    """Rows of (p, 1 - p, 0): the nearer p is to 1, the surer."""
    return torch.stack([sure, 1 - sure, torch.zeros_like(sure)], dim=1)


def outer_fields(m: int, **changes: Any) -> dict[str, Any]:
    fields = {"phase": "one", "outer": m, "cumulative_loss": 2.0 / (m + 1), "changed": 0.5}
    return {**fields, "unlabelled_accuracy": None, "image_passes": 100 * (m + 1), **changes}


def epoch_fields(n: int, loss: float = 0.5) -> dict[str, Any]:
    return {"epoch": n, "loss": loss, "rate": 0.1, "score": 1}


def events_of(folder: Path) -> Any:
    return EventAccumulator(str(folder), {"scalars": 0, "images": 0, "tensors": 0}).Reload()


def scalars(events: Any, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events.Scalars(tag)]


def picture(events: Any) -> Tensor:
    """The one image, as (height, width, channels)."""
    (event,) = events.Images(UNCERTAIN)
    with Image.open(io.BytesIO(event.encoded_image_string)) as image:
        assert (event.height, event.width) == (image.height, image.width)
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        return pixels.reshape(image.height, image.width, -1)


def tiles(grid: Tensor, height: int, width: int) -> list[Tensor]:
    """The 16 images of the grid, without the lines between them."""
    return [
        tile[1:-1, 1:-1]
        for row in grid.split(height + 2, dim=0)
        for tile in row.split(width + 2, dim=1)
    ]


def test_the_numbers_of_all_parts(tmp_path: Path) -> None:
    features = images(torch.rand(N, 1, 2, 2))
    features = PartiallyLabelled(torch.rand(N, 2), features.y, features.classes, features.ids)
    board = Board(tmp_path)
    for n in range(2):
        board.epoch("supervised", epoch_fields(n))
    for m in range(3):
        board.outer(outer_fields(m), posterior(torch.rand(40)), features)
    board.epoch("two", epoch_fields(0, loss=0.25))
    board.close()
    events = events_of(tmp_path)
    epoch_tags = {f"{part}/{name}" for part in ("supervised", "phase two") for name in
                  ("loss", "rate", "score")}  # fmt: skip
    outer_tags = {f"phase one/{name}" for name in ("cumulative_loss", "changed", "image_passes")}
    assert set(events.Tags()["scalars"]) == epoch_tags | outer_tags
    assert scalars(events, "phase one/image_passes") == [(0, 100), (1, 200), (2, 300)]
    assert scalars(events, "supervised/loss") == [(0, 0.5), (1, 0.5)]
    assert scalars(events, "phase two/loss") == [(0, 0.25)]
    assert events.Tags()["images"] == events.Tags()["tensors"] == []  # features show nothing


def test_the_most_uncertain_rows_are_shown(tmp_path: Path) -> None:
    data = images(grey(3 * torch.arange(N)))
    rows = data.unlabelled_rows
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    sure = 0.5 + 0.01 * order  # the row of order 0 is the least sure
    board = Board(tmp_path)
    board.outer(outer_fields(4), posterior(sure), data)
    board.close()
    events, expected = events_of(tmp_path), rows[order.argsort()[:16]]
    grid = picture(events)
    assert grid.shape == (4 * (5 + 2), 4 * (6 + 2), 3)
    for tile, row in zip(tiles(grid, 5, 6), expected.tolist(), strict=True):
        assert (tile == 3 * row).all()
    (text,) = events.Tensors(f"{UNCERTAIN}/text_summary")
    assert text.step == 4
    assert text.tensor_proto.string_val[0].decode().splitlines() == [
        f"    photos/{row}_a|b.png: cat {0.5 + 0.01 * i:.3f}, dog {0.5 - 0.01 * i:.3f}"
        for i, row in enumerate(expected.tolist())
    ]


@pytest.mark.parametrize(("channels", "shown"), [(1, 1), (2, 1), (3, 3), (4, 3), (7, 3)])
def test_images_of_all_channels_and_of_floats(tmp_path: Path, channels: int, shown: int) -> None:
    x = torch.randint(256, (3, channels, 5, 6), generator=torch.Generator().manual_seed(1))
    for kind, rows in (("bytes", x.to(torch.uint8)), ("floats", ((x - 0.3) / 255).clamp(min=0))):
        data = images(rows)
        board = Board(tmp_path / kind)
        board.outer(outer_fields(0), posterior(torch.tensor([0.9, 0.6])), data)
        board.close()
        drawn = tiles(picture(events_of(tmp_path / kind)), 5, 6)
        assert len(drawn) == 16
        for tile, row in zip(drawn, (2, 1), strict=False):
            assert (tile == x[row, :shown].permute(1, 2, 0)).all()
        assert all((tile == 255).all() for tile in drawn[2:])


def test_a_run_that_continues_has_each_step_once(tmp_path: Path) -> None:
    data, P_u = images(grey(torch.arange(N))), posterior(torch.full((40,), 0.5))
    board = Board(tmp_path)
    for n in range(5):
        board.epoch("supervised", epoch_fields(n))
    for m in range(3):
        board.outer(outer_fields(m), P_u, data)
    # No close: the process was killed. All it wrote is there but for the end of its last record.
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-10])
    board = Board(tmp_path)
    for m in range(1, 5):
        board.outer(outer_fields(m, changed=0.25), P_u, data)
    board.epoch("two", epoch_fields(0))
    board.close()
    events = events_of(tmp_path)
    assert [event.step for event in events.Images(UNCERTAIN)] == [0, 1, 2, 3, 4]
    assert scalars(events, "phase one/changed") == [
        (0, 0.5), (1, 0.5), (2, 0.5), (3, 0.25), (4, 0.25)
    ]  # fmt: skip
    assert len(events.Scalars("supervised/loss")) == 5
    assert len(events.Scalars("phase two/loss")) == 1


def test_without_tensorboard_one_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ValueError, match=r"pip install 'saas-ssl\[tensorboard\]'"):
        Board(tmp_path / "board")
    assert not (tmp_path / "board").exists()
