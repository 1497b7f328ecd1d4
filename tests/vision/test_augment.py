from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.vision.augment import (
    RECIPES,
    Preprocessing,
    Recipe,
    affine_matrices,
    augment,
    augmented_view,
    cut_out,
    fit_preprocessing,
    jitter_colours,
    named_recipe,
    perturb,
    strong,
)
from saas_ssl.vision.whitening import fit_zca

FOR_FEATURES = [name for name, recipe in RECIPES.items() if recipe.noise or recipe.dropout]
ALL = [
    f"{prefix}{name}" for prefix in ("", "strong-") for name in RECIPES if name not in FOR_FEATURES
]


def images(n: int = 8, channels: int = 3, size: int = 16) -> Tensor:
    return torch.rand(n, channels, size, size, generator=generator_at(0, "images"))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("channels", [1, 3])
def test_recipes_keep_shape_and_range_and_follow_the_generator(name: str, channels: int) -> None:
    x, recipe = images(channels=channels), named_recipe(name)
    once, again = (augment(x, recipe, generator_at(1)) for _ in range(2))
    assert once.shape == x.shape
    assert once.min() >= 0.0
    assert once.max() <= 1.0 + 1e-6
    assert torch.equal(once, again)
    if name == "none":
        assert torch.equal(once, x)
    else:
        assert not torch.equal(once, augment(x, recipe, generator_at(2)))


@pytest.mark.parametrize("name", [name for name in ALL if name != "none"])
def test_one_draw_per_image(name: str) -> None:
    same = images(1).expand(32, -1, -1, -1)
    out = augment(same, named_recipe(name), generator_at(0))
    assert len({image.numpy().tobytes() for image in out}) > 4


def test_the_caller_s_images_are_untouched() -> None:
    x = images()
    before = x.clone()
    augment(x, named_recipe("strong-cifar10"), generator_at(0))
    assert torch.equal(x, before)


def test_translation_is_by_whole_pixels() -> None:
    x = torch.zeros(64, 1, 16, 16)
    x[:, 0, 8, 8] = 1.0
    out = augment(x, RECIPES["translate"], generator_at(0))
    positions = set()
    for image in out[:, 0]:
        assert image.max().item() == pytest.approx(1.0, abs=1e-5)  # moved, not blurred
        row, column = divmod(int(image.argmax()), 16)
        positions.add((row - 8, column - 8))
    assert {abs(d) for position in positions for d in position} == {0, 1, 2}  # 16 / 8 = 2


def test_what_leaves_the_frame_is_replaced_by_black() -> None:
    out = augment(torch.ones(64, 1, 16, 16), RECIPES["translate"], generator_at(0))
    assert set(out.unique().round(decimals=4).tolist()) == {0.0, 1.0}


def test_affine_takes_one_of_shear_zoom_and_rotation() -> None:
    recipe = RECIPES["digits"]
    matrices = affine_matrices(3000, 32, 32, recipe, generator_at(0))[:, :, :2]
    a, b, c, _ = matrices.flatten(1).T
    zoomed = (b == 0) & (c == 0) & (a != 1)
    rotated = c != 0
    sheared = (c == 0) & (b != 0)
    still = (b == 0) & (c == 0) & (a == 1)  # a shear by 0 degrees
    assert (zoomed | rotated | sheared | still).all()
    for kind, share in ((zoomed, 1 / 3), (rotated, 1 / 3), (sheared, 4 / 15)):
        assert kind.double().mean().item() == pytest.approx(share, abs=0.04)
    assert {round(1 / v, 3) for v in a[zoomed].tolist()} == {0.8, 0.9, 1.1, 1.2}
    angles = torch.atan2(c[rotated], a[rotated]).rad2deg()
    assert angles.abs().max() <= 10.0
    assert angles.std().item() == pytest.approx(20 / 12**0.5, rel=0.1)  # uniform within ±10
    shears = b[sheared].atan().rad2deg()
    assert {round(v) for v in shears.tolist()} == {-10, -5, 5, 10}


def test_rotation_keeps_distances_in_oblong_images() -> None:
    matrix = affine_matrices(1, 20, 40, Recipe(rotate=30.0), generator_at(3))[0, :, :2]
    to_pixels = torch.diag(torch.tensor([40.0, 20.0]))
    in_pixels = to_pixels @ matrix @ torch.linalg.inv(to_pixels)
    torch.testing.assert_close(in_pixels @ in_pixels.T, torch.eye(2), atol=1e-5, rtol=0)
    assert in_pixels[0, 1].abs() > 0.01


def test_flip_mirrors_about_half_of_the_images() -> None:
    x = images(200)
    out = augment(x, Recipe(flip=True), generator_at(0))
    flipped = (out - x.flip(3)).abs().amax(dim=(1, 2, 3)) < 1e-4
    kept = (out - x).abs().amax(dim=(1, 2, 3)) < 1e-4
    assert (flipped ^ kept).all()
    assert 70 < int(flipped.sum()) < 130


def test_brightness_scales_and_contrast_keeps_the_mean_grey() -> None:
    x = 0.25 + 0.1 * images(16)
    bright = jitter_colours(x, Recipe(brightness=0.4), generator_at(0))
    ratio = bright / x
    torch.testing.assert_close(ratio, ratio[:, :1, :1, :1].expand_as(ratio), rtol=1e-4, atol=1e-4)
    assert ratio.min() >= 0.6 - 1e-5
    assert ratio.max() <= 1.4 + 1e-5
    grey = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    contrast = jitter_colours(x, Recipe(contrast=0.4), generator_at(0))
    torch.testing.assert_close(
        (contrast * grey).sum(1).mean((1, 2)), (x * grey).sum(1).mean((1, 2)), atol=1e-4, rtol=0
    )


def test_saturation_and_hue_keep_grey_pixels_and_luma() -> None:
    recipe = Recipe(saturation=0.4, hue=0.1)
    grey_image = (0.2 + 0.5 * images(8, channels=1)).expand(-1, 3, -1, -1)
    out = jitter_colours(grey_image, recipe, generator_at(0))
    torch.testing.assert_close(out, grey_image, atol=2e-3, rtol=0)
    coloured = 0.4 + 0.1 * images()
    changed = jitter_colours(coloured, recipe, generator_at(0))
    assert (changed - coloured).abs().max() > 0.01
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    torch.testing.assert_close(
        (changed * weights).sum(1), (coloured * weights).sum(1), atol=2e-3, rtol=0
    )


@pytest.mark.parametrize("recipe", [Recipe(saturation=0.4), Recipe(hue=0.1)])
def test_saturation_and_hue_each_change_colours(recipe: Recipe) -> None:
    coloured = 0.3 + 0.3 * images()
    changed = jitter_colours(coloured, recipe, generator_at(0))
    assert (changed - coloured).abs().amax(dim=(1, 2, 3)).min() > 1e-3
    chroma = (coloured - coloured.mean(1, keepdim=True)).norm(dim=1)
    after = (changed - changed.mean(1, keepdim=True)).norm(dim=1)
    if recipe.saturation:  # colours move towards grey or away from it, along the same line
        ratio = (after / chroma).flatten(1).median(dim=1).values
        assert ratio.min() < 0.9
        assert ratio.max() > 1.1


def test_even_the_smallest_images_are_translated() -> None:
    matrices = affine_matrices(200, 8, 8, RECIPES["digits"], generator_at(0))
    assert set((matrices[:, 0, 2] * 4).round().tolist()) == {-1.0, 0.0, 1.0}


def test_cutout_blackens_a_square_of_the_given_side() -> None:
    out = cut_out(torch.ones(200, 2, 16, 16), (0.5, 0.5), generator_at(0))
    assert torch.equal(out[:, 0], out[:, 1])
    holes = (out[:, 0] == 0).sum((1, 2))
    assert holes.max() == 64  # 8 x 8 where it lies inside
    assert holes.min() > 0


def test_strong_doubles_every_range() -> None:
    weak, doubled = RECIPES["cifar10"], strong(RECIPES["cifar10"])
    for field in fields(Recipe):
        before, after = getattr(weak, field.name), getattr(doubled, field.name)
        if field.name == "flip":
            assert after is True
        elif field.name == "cutout":
            assert after == (0.5, 0.5)
        elif field.name == "zoom":
            assert after == pytest.approx((0.6, 0.8, 1.2, 1.4))
        elif isinstance(before, tuple):
            assert after == tuple(2 * value for value in before)
        else:
            assert after == 2 * before
    assert named_recipe("strong-cifar10") == doubled
    for name in FOR_FEATURES:
        weak, doubled = RECIPES[name], named_recipe(f"strong-{name}")
        assert doubled == Recipe(noise=2 * weak.noise, dropout=2 * weak.dropout)


def test_noise_and_dropout_are_those_of_the_recipe() -> None:
    x, recipe = torch.full((400, 50), 3.0), Recipe(noise=0.5, dropout=0.2)
    out = perturb(x, recipe, generator_at(0))
    assert torch.equal(out, perturb(x, recipe, generator_at(0)))
    assert not torch.equal(out, perturb(x, recipe, generator_at(1)))
    kept = out[out != 0]
    assert len(kept) / x.numel() == pytest.approx(0.8, abs=0.01)
    assert kept.mean().item() == pytest.approx(3.0, abs=0.02)
    assert kept.std().item() == pytest.approx(0.5, abs=0.02)
    assert torch.equal(x, torch.full((400, 50), 3.0))  # nothing is changed in place


@pytest.mark.parametrize("name", FOR_FEATURES)
def test_features_are_perturbed_after_they_are_standardised(name: str) -> None:
    x = 1000 + 50 * torch.randn(300, 6, generator=generator_at(0), dtype=torch.float64)
    recipe, preprocessing = RECIPES[name], fit_preprocessing(x)
    view = augmented_view(recipe, preprocessing, ndim=2)
    assert torch.equal(view(x, generator_at(1)), perturb(preprocessing(x), recipe, generator_at(1)))
    pixels = (images(4) * 255).to(torch.uint8)  # images may be perturbed too
    assert augmented_view(recipe, fit_preprocessing(pixels))(pixels, generator_at(0)).shape == (
        pixels.shape
    )


def test_cifar10_and_svhn_have_what_the_paper_lists() -> None:
    cifar10, svhn = RECIPES["cifar10"], RECIPES["svhn"]
    assert cifar10.flip
    assert (cifar10.brightness, cifar10.contrast, cifar10.saturation) == (0.4, 0.4, 0.4)
    assert cifar10.hue == 0.1
    assert cifar10.translate * 32 == 4
    assert not svhn.flip
    assert not svhn.is_coloured
    assert svhn.cutout == (5 / 32, 9 / 32)
    assert replace(svhn, cutout=None, translate=1 / 16) == RECIPES["digits"]


def test_preprocessing_standardises_the_training_rows() -> None:
    x = torch.randint(0, 256, (5000, 3, 4, 4), generator=generator_at(0), dtype=torch.uint8)
    out = fit_preprocessing(x)(x)
    assert out.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(out.mean((0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(out.std((0, 2, 3)), torch.ones(3), atol=1e-3, rtol=0)


def test_preprocessing_of_features_leaves_constant_ones_finite() -> None:
    x = torch.stack([torch.arange(10.0), torch.full((10,), 7.0)], dim=1)
    out = fit_preprocessing(x)(x)
    torch.testing.assert_close(out[:, 0].std(correction=0), torch.ones(()))
    assert not out[:, 1].any()


@pytest.mark.parametrize(
    ("scale", "offset", "dtype"),
    [(1e-7, 0.0, torch.float32), (1e-3, 1e5, torch.float64), (10.0, 1.7e9, torch.float64)],
)
def test_features_of_any_scale_are_standardised(
    scale: float, offset: float, dtype: torch.dtype
) -> None:
    x = scale * torch.randn(5000, 3, generator=generator_at(0), dtype=torch.float64) + offset
    out = fit_preprocessing(x.to(dtype))(x.to(dtype))
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.std(dim=0), torch.ones(3), atol=1e-2, rtol=0)
    torch.testing.assert_close(out.mean(dim=0), torch.zeros(3), atol=1e-2, rtol=0)


def test_views_of_features_and_of_whitened_images() -> None:
    x = (images(40, size=8) * 255).to(torch.uint8)
    whitened = Preprocessing(torch.zeros(()), torch.ones(()), fit_zca(x))
    with pytest.raises(ValueError, match="no colours"):
        augmented_view(RECIPES["cifar10"], whitened)
    assert augmented_view(RECIPES["translate"], whitened)(x, generator_at(0)).shape == x.shape
    with pytest.raises(ValueError, match="for features choose features or none"):
        augmented_view(RECIPES["digits"], fit_preprocessing(torch.rand(9, 4)), ndim=2)
    with pytest.raises(ValueError, match="needs images"):
        augment(torch.rand(9, 4), RECIPES["digits"], generator_at(0))


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown augmentation 'mnist': choose one of none"):
        named_recipe("mnist")


def test_whitening_makes_white_and_can_be_undone() -> None:
    mix = torch.randn(12, 12, generator=generator_at(0))
    x = torch.randn(20_000, 12, generator=generator_at(1)) @ mix * 0.1 + 0.5
    zca = fit_zca(x, epsilon=1e-9)
    white = zca.apply(x)
    torch.testing.assert_close(white.T.cov(), torch.eye(12), atol=2e-3, rtol=0)
    torch.testing.assert_close(zca.invert(white), x, atol=1e-3, rtol=0)
    torch.testing.assert_close(zca.whiten, zca.whiten.T, atol=1e-4, rtol=1e-4)  # zero-phase


def test_whitening_by_few_rows_does_not_blow_up_what_they_do_not_show() -> None:
    mix = torch.randn(64, 64, generator=generator_at(0)) * 0.05
    x = torch.randn(2000, 64, generator=generator_at(1)) @ mix + 0.5
    few, new = x[:50], x[1000:]
    assert fit_zca(few).apply(new).std() < 3
    assert fit_zca(few, epsilon=1e-6).apply(new).std() > 10
    many = x[:1000]
    assert torch.equal(fit_zca(many).whiten, fit_zca(many, epsilon=1e-6).whiten)


def test_whitening_of_images_keeps_their_shape() -> None:
    x = (images(60, size=4) * 255).to(torch.uint8)
    zca = fit_zca(x)
    white = zca.apply(x)
    assert white.shape == x.shape
    torch.testing.assert_close(zca.invert(white), x / 255.0, atol=1e-2, rtol=0)
