"""g ~ U(G): augmentation batched on tensors, one independent draw per image, from a generator."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor
from torch.nn.functional import affine_grid, grid_sample

from saas_ssl.algorithm.blocks import in_blocks
from saas_ssl.algorithm.network import View
from saas_ssl.vision.whitening import Total, Zca, fit_zca, own_total


@dataclass(frozen=True)
class Recipe:
    """Ranges of the random changes of a row; lengths are shares of the image's side.

    The affine part is a translation by whole pixels, then one of three: a shear, a zoom or a
    rotation, as in the authors' code. Noise and dropout come last, on standardised numbers.
    """

    translate: float = 0.0
    shear: tuple[float, ...] = ()  # degrees, one is chosen
    zoom: tuple[float, ...] = ()  # factors, one is chosen
    rotate: float = 0.0  # degrees, uniform within ±
    flip: bool = False
    brightness: float = 0.0  # factors uniform within 1 ±
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0  # turns, uniform within ±
    cutout: tuple[float, float] | None = None  # side of a black square, uniform between
    noise: float = 0.0  # of Gaussian noise on every number, in standard deviations of it
    dropout: float = 0.0  # share of numbers that become their mean

    @property
    def is_affine(self) -> bool:
        """Whether pixels move at all."""
        return bool(self.translate or self.shear or self.zoom or self.rotate or self.flip)

    @property
    def is_coloured(self) -> bool:
        """Whether pixel values change."""
        return bool(self.brightness or self.contrast or self.saturation or self.hue)

    @property
    def is_for_images(self) -> bool:
        """Whether anything of it needs pixels; noise and dropout suit features too."""
        return self.is_affine or self.is_coloured or self.cutout is not None


_AFFINE = Recipe(translate=1 / 8, shear=(-10, -5, 0, 5, 10), zoom=(0.8, 0.9, 1.1, 1.2), rotate=10.0)
RECIPES: dict[str, Recipe] = {
    "none": Recipe(),
    "translate": Recipe(translate=1 / 8),
    "translate-flip": Recipe(translate=1 / 8, flip=True),
    "digits": replace(_AFFINE, translate=1 / 16),  # digits fill their frame
    "svhn": replace(_AFFINE, cutout=(5 / 32, 9 / 32)),
    "cifar10": replace(_AFFINE, flip=True, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
    "features": Recipe(noise=0.4, dropout=0.2),
    "few-features": Recipe(noise=0.2, dropout=0.1),  # of few, each says more
}


def strong(recipe: Recipe) -> Recipe:
    """The same changes over twice the range, and of images a cutout of half the side."""
    return replace(
        recipe,
        translate=2 * recipe.translate,
        shear=tuple(2 * degrees for degrees in recipe.shear),
        zoom=tuple(1 + 2 * (factor - 1) for factor in recipe.zoom),
        rotate=2 * recipe.rotate,
        brightness=2 * recipe.brightness,
        contrast=2 * recipe.contrast,
        saturation=2 * recipe.saturation,
        hue=2 * recipe.hue,
        cutout=None if recipe.noise or recipe.dropout else (0.5, 0.5),
        noise=2 * recipe.noise,
        dropout=2 * recipe.dropout,
    )


def named_recipe(name: str) -> Recipe:
    """A recipe by name; ``strong-NAME`` is the strong form of any of them."""
    base = name.removeprefix("strong-")
    if base not in RECIPES:
        raise ValueError(
            f"unknown augmentation {name!r}: choose one of {', '.join(RECIPES)}, "
            f"or strong- before any of them"
        )
    return RECIPES[base] if base == name else strong(RECIPES[base])


@dataclass(frozen=True)
class Preprocessing:
    """Rows as stored -> what the network sees: images in [0, 1], maybe whitened, standardised.

    Whitening comes before augmentation and standardisation after it, so they are two steps. Rows
    move to the device of `mean`.
    """

    mean: Tensor  # (C, 1, 1) for images, (D,) for features
    std: Tensor
    zca: Zca | None = None

    def load(self, x: Tensor) -> Tensor:
        """Rows as stored -> floats ready for augmentation, images in [0, 1] or whitened."""
        if self.mean.is_cuda and not x.is_cuda:
            x = x.pin_memory()  # or the copy would wait for the GPU
        x = x.to(self.mean.device, non_blocking=True)
        if x.dtype == torch.uint8:
            x = x.to(self.mean.dtype).div_(255.0)
        return x if self.zca is None else self.zca.apply(x)

    def to(self, device: torch.device) -> "Preprocessing":
        """The same on another device."""
        zca = None if self.zca is None else self.zca.to(device)
        return Preprocessing(self.mean.to(device), self.std.to(device), zca)

    def standardise(self, x: Tensor) -> Tensor:
        """(x - mean) / std in single precision, images in channels_last order."""
        x = ((x - self.mean) / self.std).float()
        return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x

    def __call__(self, x: Tensor) -> Tensor:
        """What the network sees when nothing is augmented."""
        return self.standardise(self.load(x))


def fit_preprocessing(
    x: Tensor, whiten: bool = False, rows: Tensor | None = None, total: Total = own_total
) -> Preprocessing:
    """Mean and standard deviation per channel of images or per feature, of all rows or of some.

    `total` adds up what several processes sum over their rows.
    """
    if whiten:
        return Preprocessing(torch.zeros(()), torch.ones(()), fit_zca(x, rows, total=total))
    over, shape = ((0, 2, 3), (-1, 1, 1)) if x.ndim == 4 else ((0,), (-1,))
    scale = 255.0 if x.dtype == torch.uint8 else 1.0
    n = int(total(torch.tensor(len(x) if rows is None else len(rows)))) * x[0, 0].numel()
    mean, square = (torch.zeros(x.shape[1], dtype=torch.float64) for _ in range(2))
    for block in in_blocks(x, rows):
        mean += (block.double() / scale).sum(dim=over) / n
    mean = total(mean)
    for block in in_blocks(x, rows):  # a second pass: squares about the mean do not cancel
        square += (block.double() / scale - mean.view(shape)).square().sum(dim=over) / n
    std = total(square).sqrt()
    std[std <= 1e-12 * mean.abs()] = 1.0  # a channel or feature that never changes
    dtype = torch.float32 if x.dtype == torch.uint8 else x.dtype
    return Preprocessing(mean.view(shape).to(dtype), std.view(shape).to(dtype))


def augmented_view(recipe: Recipe, preprocessing: Preprocessing, ndim: int = 4) -> View:
    """Compose: load, augment by the recipe, standardise, perturb."""
    if recipe == Recipe():
        return lambda x, _generator: preprocessing(x)
    if ndim != 4 and recipe.is_for_images:
        raise ValueError("these augmentations are for images: for features choose features or none")
    if recipe.is_coloured and preprocessing.zca is not None:
        raise ValueError("whitened images have no colours to change: choose translate or none")

    def view(x: Tensor, generator: Generator) -> Tensor:
        x = preprocessing.load(x)
        x = augment(x, recipe, generator) if recipe.is_for_images else x
        return perturb(preprocessing.standardise(x), recipe, generator)

    return view


def augment(x: Tensor, recipe: Recipe, generator: Generator) -> Tensor:
    """g_i(x_i) for a batch of float images (B, C, H, W); colours are kept within [0, 1]."""
    if x.ndim != 4:
        raise ValueError(f"augmentation needs images (B, C, H, W), not shape {tuple(x.shape)}")
    if recipe.is_affine:
        matrices = affine_matrices(x.shape[0], x.shape[2], x.shape[3], recipe, generator)
        grid = affine_grid(matrices.to(x), list(x.shape), align_corners=False)
        x = grid_sample(x, grid, padding_mode="zeros", align_corners=False)
    if recipe.is_coloured:
        x = jitter_colours(x, recipe, generator)
    if recipe.cutout is not None:
        x = cut_out(x, recipe.cutout, generator)
    return x


def perturb(x: Tensor, recipe: Recipe, generator: Generator) -> Tensor:
    """(x + noise · N(0, I)) · mask: of standardised numbers, some become 0, which is their mean."""
    if recipe.noise:
        x = x + recipe.noise * torch.randn(x.shape, generator=generator).to(x)
    if recipe.dropout:
        x = x * (torch.rand(x.shape, generator=generator) >= recipe.dropout).to(x)
    return x


def affine_matrices(B: int, H: int, W: int, recipe: Recipe, generator: Generator) -> Tensor:  # noqa: N803
    """(B, 2, 3): where in the input, in coordinates from -1 to 1, each output pixel is read."""
    ones, zeros = torch.ones(B), torch.zeros(B)
    # One of shear, zoom and rotation per image; what the recipe lacks is never chosen.
    kinds = [
        kind for kind, wanted in enumerate((recipe.shear, recipe.zoom, recipe.rotate)) if wanted
    ]
    kind = _choice(tuple(float(k) for k in kinds) or (-1.0,), B, generator)
    shear = torch.where(kind == 0, _choice(recipe.shear or (0.0,), B, generator), zeros)
    zoom = torch.where(kind == 1, _choice(recipe.zoom or (1.0,), B, generator), ones)
    turn = torch.where(kind == 2, _uniform(-recipe.rotate, recipe.rotate, B, generator), zeros)
    shear, turn = shear.deg2rad(), turn.deg2rad()
    mirror = _choice((-1.0, 1.0), B, generator) if recipe.flip else ones
    # In pixels: rotation · shear / zoom, mirrored.
    a, b = turn.cos() * mirror / zoom, (turn.cos() * shear.tan() - turn.sin()) / zoom
    c, d = turn.sin() * mirror / zoom, (turn.sin() * shear.tan() + turn.cos()) / zoom
    across, down = (_whole(_pixels(recipe.translate, side), B, generator) for side in (W, H))
    # Coordinates run from -1 to 1 along both sides, whatever their lengths.
    rows = torch.stack([a, b * (H / W), 2 * across / W, c * (W / H), d, 2 * down / H], dim=1)
    return rows.view(B, 2, 3)


_GREY = torch.tensor([0.299, 0.587, 0.114])
# RGB -> (luma, two chroma axes) and back, the YIQ coordinates of television.
_TO_YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
_FROM_YIQ = torch.linalg.inv(_TO_YIQ)


def jitter_colours(x: Tensor, recipe: Recipe, generator: Generator) -> Tensor:
    """Brightness, contrast, saturation and hue as one affine map of the colours per image.

    Contrast scales about the image's mean grey, saturation about each pixel's grey, and hue turns
    the chroma plane; grey images have only the first two.
    """
    B, C = x.shape[:2]  # noqa: N806
    bright = _uniform(1 - recipe.brightness, 1 + recipe.brightness, B, generator).to(x)
    contrast = _uniform(1 - recipe.contrast, 1 + recipe.contrast, B, generator).to(x)
    scale = (bright * contrast).view(B, 1, 1)
    means = x.mean(dim=(2, 3))  # (B, C)
    if C == 3:
        saturation = _uniform(1 - recipe.saturation, 1 + recipe.saturation, B, generator)
        angle = _uniform(-recipe.hue, recipe.hue, B, generator) * (2 * math.pi)
        # In YIQ: luma stays, chroma is scaled by the saturation and turned by the hue.
        cos, sin = saturation * angle.cos(), saturation * angle.sin()
        one, nil = torch.ones(B), torch.zeros(B)
        turn = torch.stack([one, nil, nil, nil, cos, -sin, nil, sin, cos], dim=1).view(B, 3, 3)
        colours = (_FROM_YIQ @ turn @ _TO_YIQ).to(x) * scale
        grey = means @ _GREY.to(x)
    else:
        colours = torch.eye(C).to(x) * scale
        grey = means.mean(dim=1)
    offset = ((1 - contrast) * bright * grey).view(B, 1, 1)
    mapped = torch.baddbmm(offset, colours, x.reshape(B, C, -1))
    return mapped.clamp_(0.0, 1.0).view_as(x)


def cut_out(x: Tensor, sides: tuple[float, float], generator: Generator) -> Tensor:
    """Blacken a square per image, its centre anywhere in the image."""
    B, _, H, W = x.shape  # noqa: N806
    half = _uniform(*sides, B, generator) * min(H, W) / 2
    masks = []
    for side in (H, W):
        centre = torch.rand(B, generator=generator) * side
        pixels = torch.arange(side) + 0.5
        masks.append((pixels - centre[:, None]).abs() < half[:, None])  # (B, side)
    inside = masks[0][:, None, :, None] & masks[1][:, None, None, :]
    return x.masked_fill(inside.to(x.device), 0.0)


def _uniform(low: float, high: float, n: int, generator: Generator) -> Tensor:
    return low + (high - low) * torch.rand(n, generator=generator)


def _choice(values: tuple[float, ...], n: int, generator: Generator) -> Tensor:
    return torch.tensor(values)[torch.randint(len(values), (n,), generator=generator)]


def _pixels(share: float, side: int) -> int:
    return max(1, round(share * side)) if share else 0


def _whole(largest: int, n: int, generator: Generator) -> Tensor:
    return torch.randint(-largest, largest + 1, (n,), generator=generator).float()
