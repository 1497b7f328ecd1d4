"""Features of images by any module, and what is learned from them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from saas_ssl import SaaSClassifier, embed
from saas_ssl.images.form import LARGEST_SIDE


class Remembering(nn.Module):
    """The mean of each channel; remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(3)
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        self.seen.append(x)
        return x.mean(dim=(2, 3))


def images(n: int = 10) -> Any:
    return np.random.default_rng(0).integers(0, 256, size=(n, 12, 9, 3), dtype=np.uint8)


def test_every_layout_gives_the_same_features_in_batches() -> None:
    x = images()
    module = Remembering().train()
    features = embed(x, module, batch_size=4)
    assert [len(batch) for batch in module.seen] == [4, 4, 2]
    assert module.training  # as it was before
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, x.mean(axis=(1, 2)) / 255, atol=1e-6)
    for other in (torch.from_numpy(x), x.transpose(0, 3, 1, 2), (x / 255).astype(np.float32)):
        np.testing.assert_allclose(embed(other, Remembering()), features, atol=1e-6)
    grey = embed(x[..., 0], nn.Flatten())
    np.testing.assert_allclose(grey, x[..., 0].reshape(10, -1) / 255, atol=1e-6)


def test_what_the_module_sees_is_standardised_and_of_the_size_it_wants() -> None:
    module = Remembering()
    embed(images(), module, image_size=8, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    (seen,) = module.seen
    assert seen.shape == (10, 3, 8, 8)
    plain = Remembering()
    embed(images(), plain, image_size=8)
    mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.3, 0.4])
    expected = (plain.seen[0] - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    torch.testing.assert_close(seen, expected)
    coloured = Remembering()
    embed(images()[..., 0], coloured, colour=True)
    assert coloured.seen[0].shape == (10, 3, 12, 9)
    assert torch.equal(coloured.seen[0][:, 0], coloured.seen[0][:, 2])
    assert embed(images(), nn.Flatten(), colour=False).shape == (10, 108)


def test_files_and_opened_images(tmp_path: Path) -> None:
    x = images()
    files = [tmp_path / f"{n}.png" for n in range(10)]
    for file, pixels in zip(files, x, strict=True):
        Image.fromarray(pixels).save(file)
    expected = embed(x, Remembering(), image_size=8)
    np.testing.assert_array_equal(embed(files, Remembering(), image_size=8), expected)
    opened = [Image.open(file) for file in files]
    np.testing.assert_array_equal(embed(opened, Remembering(), image_size=8), expected)
    for image in opened:
        image.close()
    with pytest.raises(ValueError, match="files differ in size: give image_size"):
        embed(files, Remembering())
    files[3].write_bytes(b"not an image")
    with pytest.raises(ValueError, match=r"image 3 \(.*3\.png\): not an image"):
        embed(files, Remembering(), image_size=8)


def test_maps_of_features_are_averaged_and_weights_decide_the_type() -> None:
    x = images()
    convolution = nn.Conv2d(3, 5, 3)
    features = embed(x, convolution)
    assert features.shape == (10, 5)
    double = embed(x, nn.Conv2d(3, 5, 3).double())
    assert double.dtype == np.float32
    with torch.no_grad():
        maps = convolution(torch.from_numpy(x).permute(0, 3, 1, 2) / 255)
    np.testing.assert_allclose(features, maps.mean(dim=(2, 3)).numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"image_size": LARGEST_SIDE + 1}, "image_size must be 1 to 1024"),
        ({"mean": (0.5,)}, "both mean and std"),
        ({"mean": (0.5,), "std": (0.5,)}, "each of the 3 channels, not 1 and 1"),
        ({"mean": (0.5,) * 3, "std": (0.0,) * 3}, "std must be above 0"),
        ({"images": images()[0, 0]}, r"but their shape is \(9, 3\)"),
        ({"images": images().astype(np.int64)}, "uint8 or floating-point numbers"),
        ({"images": images() / 255.0, "image_size": 8}, "keep their size and channels"),
        ({"images": []}, "no images to embed"),
        ({"images": images(0)}, "no images to embed"),
        ({"module": nn.Identity(), "images": images()[:, :, :, :1]}, None),
        ({"module": nn.Flatten(0)}, r"gives \(3240,\) for 10 images"),
        ({"module": nn.Unflatten(1, (1, 3))}, r"gives \(10, 1, 3, 12, 9\) for 10 images"),
    ],
)
def test_wrong_use_is_one_sentence(change: dict[str, Any], sentence: str | None) -> None:
    arguments = {"images": images(), "module": Remembering(), **change}
    if sentence is None:
        assert embed(**arguments).shape == (10, 1)
        return
    with pytest.raises(ValueError, match=sentence):
        embed(**arguments)


def test_the_mode_of_the_module_comes_back_after_an_error() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3)).train()
    with pytest.raises(RuntimeError):
        embed(images(), module)
    assert module.training


def test_few_labels_are_enough_on_good_features() -> None:
    truth = np.arange(90) % 3
    x = images(90)
    x[np.arange(90), :, :, truth] //= 4  # each class lacks a colour
    y = np.where(np.arange(90) < 9, truth, -1)
    model = SaaSClassifier(random_state=0, outer_iterations=1).fit(embed(x, Remembering()), y)
    assert np.mean(model.transduction_ == truth) > 0.95
