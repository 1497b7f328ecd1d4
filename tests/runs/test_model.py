"""A classifier survives the disk, and takes rows as people have them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from saas_ssl import Model, build, fit_preprocessing, generator_at, load, named_factory, predict
from saas_ssl.images.form import Form
from saas_ssl.images.pixels import decode_chunk
from saas_ssl.runs.model import save
from saas_ssl.vision.networks import NETWORKS

CLASSES = ["a", "b", "c"]


def model(
    in_shape: tuple[int, ...], name: str, width: int | None = 4, whiten: bool = False
) -> Model:
    generator = generator_at(0, name)
    rows = torch.rand((20, *in_shape), generator=generator)
    x = (rows * 255).to(torch.uint8) if len(in_shape) == 3 else rows
    network = build(named_factory(name, width), in_shape, len(CLASSES), generator).train()
    preprocessing = fit_preprocessing(x, whiten)
    network(preprocessing(x))  # running means that are not those of a fresh network
    form = Form(in_shape[1], in_shape[2], in_shape[0]) if len(in_shape) == 3 else None
    return Model(network.eval(), name, width, in_shape, CLASSES, preprocessing, form)


def images(n: int, channels: int, side: int = 16) -> Tensor:
    generator = generator_at(1, "images")
    return torch.randint(256, (n, channels, side, side), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_disk_changes_nothing(name: str, whiten: bool, tmp_path: Path) -> None:
    shape = (8,) if name == "mlp" else (3, 16, 16)
    first = model(shape, name, whiten=whiten)
    save(first, tmp_path)
    again = load(tmp_path)
    rows = torch.rand(9, 8) if name == "mlp" else images(9, 3)
    expected = predict(first.network, first.preprocessing, rows).numpy()
    np.testing.assert_array_equal(again.predict_proba(rows), expected)
    assert (again.classes, again.name, again.form) == (CLASSES, name, first.form)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "model.safetensors"]


@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_every_layout_are_the_same_images(channels: int, tmp_path: Path) -> None:
    classifier, x = model((channels, 16, 16), "small_conv"), images(7, channels)
    f = classifier.predict_proba(x)
    last = x.permute(0, 2, 3, 1)
    for rows in (x.numpy(), last, last.numpy(), x.float() / 255, (x.double() / 255).numpy()):
        np.testing.assert_allclose(classifier.predict_proba(rows), f, atol=1e-6)
    if channels == 1:
        np.testing.assert_allclose(classifier.predict_proba(x.squeeze(1)), f, atol=1e-6)
    opened = [Image.fromarray(row.squeeze()) for row in last.numpy()]
    np.testing.assert_allclose(classifier.predict_proba(opened), f, atol=1e-6)
    for row, image in enumerate(opened):
        image.save(tmp_path / f"{row}.png")
    files = [tmp_path / f"{row}.png" for row in range(7)]
    np.testing.assert_allclose(classifier.predict_proba(files), f, atol=1e-6)
    np.testing.assert_allclose(classifier.predict_proba([*map(str, files)]), f, atol=1e-6)
    assert classifier.predict(files) == [CLASSES[k] for k in f.argmax(axis=1)]


def test_images_are_brought_to_the_models_form() -> None:
    grey, colour = (model((channels, 16, 16), "small_conv") for channels in (1, 3))
    x = images(3, 3, side=50)
    small = decode_chunk(list(x.permute(0, 2, 3, 1).numpy()), Form(16, 16, 3)).pixels
    np.testing.assert_array_equal(colour.predict_proba(x), colour.predict_proba(small))
    assert grey.predict_proba(x).shape == (3, 3)
    assert colour.predict_proba(images(3, 1, side=20)).shape == (3, 3)


def test_no_rows_are_no_probabilities() -> None:
    assert model((8,), "mlp").predict_proba(np.empty((0, 8))).shape == (0, 3)
    assert model((1, 16, 16), "small_conv").predict_proba([]).shape == (0, 3)


def test_rows_of_another_kind_are_refused(tmp_path: Path) -> None:
    features, pictures = model((8,), "mlp"), model((1, 16, 16), "small_conv")
    with pytest.raises(ValueError, match="takes features, but these data are images"):
        features.predict_proba(images(2, 1))
    with pytest.raises(ValueError, match="takes images, but these data are features"):
        pictures.predict_proba(torch.rand(2, 8))
    with pytest.raises(ValueError, match="8 features are needed, but these data have 9"):
        features.predict_proba(torch.rand(2, 9))
    (tmp_path / "empty.png").touch()
    with pytest.raises(ValueError, match=r"image 0 \(.*empty.png\): the file is empty"):
        pictures.predict_proba([tmp_path / "empty.png"])


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="it is not a finished run"):
        load(tmp_path)
