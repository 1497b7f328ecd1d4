"""f_w: network factories that draw fresh weights from a given generator.

A factory is any callable ``(in_shape, n_classes, generator) -> nn.Module`` whose module maps a
batch to logits (B, K); `in_shape` is (C, H, W) for images and (D,) for features.
"""

import inspect
import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn

from saas_ssl.algorithm.randomness import global_draws_from

NetworkFactory = Callable[[tuple[int, ...], int, Generator], nn.Module]


def small_conv(
    in_shape: tuple[int, ...], n_classes: int, generator: Generator, width: int = 16
) -> nn.Module:
    """Three stages of two 3x3 convolutions, 1, 2 and 4 `width` channels; images from 8x8 up."""
    channels = _image_channels(in_shape, smallest=8, name="small_conv")
    layers: list[nn.Module] = []
    for stage, (c_in, c_out) in enumerate(pairwise([channels, width, 2 * width, 4 * width])):
        if stage:
            layers.append(nn.MaxPool2d(2))
        layers += [*_conv_relu(c_in, c_out), *_conv_relu(c_out, c_out)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, n_classes)]
    return draw_weights_(nn.Sequential(*layers), generator)


def conv_large(
    in_shape: tuple[int, ...], n_classes: int, generator: Generator, width: int = 128
) -> nn.Module:
    """The 13-layer network of the VAT and Mean Teacher papers: 3.1 M weights at width 128."""
    channels = _image_channels(in_shape, smallest=12, name="conv_large")
    leaky = partial(nn.LeakyReLU, 0.1)

    def conv(c_in: int, c_out: int, kernel: int, padding: int) -> list[nn.Module]:
        convolution = nn.Conv2d(c_in, c_out, kernel, padding=padding, bias=False)
        return [convolution, nn.BatchNorm2d(c_out), leaky()]

    layers: list[nn.Module] = []
    for c_in, c_out in ((channels, width), (width, 2 * width)):
        layers += [*conv(c_in, c_out, 3, 1), *conv(c_out, c_out, 3, 1), *conv(c_out, c_out, 3, 1)]
        layers += [nn.MaxPool2d(2), nn.Dropout(0.5)]
    layers += conv(2 * width, 4 * width, 3, 0)
    layers += [*conv(4 * width, 2 * width, 1, 0), *conv(2 * width, width, 1, 0)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, n_classes)]
    return draw_weights_(nn.Sequential(*layers), generator, negative_slope=0.1)


class PreActivationBlock(nn.Module):
    """x + conv(relu(bn(conv(relu(bn(x)))))), with a 1x1 convolution of relu(bn(x)) as the way round
    where the shape changes.
    """

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(c_in)
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False)
        changes_shape = stride != 1 or c_in != c_out
        self.shortcut = nn.Conv2d(c_in, c_out, 1, bias=False) if changes_shape else None
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        active = torch.relu(self.bn1(x))
        # Every stride-th pixel, then a plain 1x1 convolution: the same as a strided one, which
        # corrupts memory on CPUs where there are few channels (see check_safe_on_cpu).
        kept = active[:, :, :: self.stride, :: self.stride]
        around = x if self.shortcut is None else self.shortcut(kept)
        through: Tensor = self.conv2(torch.relu(self.bn2(self.conv1(active))))
        return through + around


def resnet18(
    in_shape: tuple[int, ...], n_classes: int, generator: Generator, width: int = 64
) -> nn.Module:
    """ResNet18 in its CIFAR form: pre-activation, 3x3 stem, 11.2 M weights at width 64.

    The sum of the last stage is normalised, which the authors' code does not do: at Kaiming's scale
    of weights and the paper's learning rate of 0.1 training diverges without it.
    """
    channels = _image_channels(in_shape, smallest=8, name="resnet18")
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False)]
    c_in = width
    for stage in range(4):
        c_out = width << stage
        layers += [
            PreActivationBlock(c_in, c_out, stride=2 if stage else 1),
            PreActivationBlock(c_out, c_out, stride=1),
        ]
        c_in = c_out
    layers += [nn.BatchNorm2d(c_in), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c_in, n_classes)]
    return draw_weights_(nn.Sequential(*layers), generator)


def mlp(
    in_shape: tuple[int, ...], n_classes: int, generator: Generator, width: int = 128
) -> nn.Module:
    """Two hidden layers of `width` units with batch normalisation, for feature vectors."""
    layers: list[nn.Module] = [nn.Flatten()]
    for c_in, c_out in pairwise([math.prod(in_shape), width, width]):
        layers += [nn.Linear(c_in, c_out, bias=False), nn.BatchNorm1d(c_out), nn.ReLU()]
    layers.append(nn.Linear(width, n_classes))
    return draw_weights_(nn.Sequential(*layers), generator)


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "small_conv": small_conv,
    "resnet18": resnet18,
    "conv_large": conv_large,
    "mlp": mlp,
}


def named_factory(name: str, width: int | None = None) -> NetworkFactory:
    """One of our networks by its name, at its own width unless one is given."""
    if name not in NETWORKS:
        raise ValueError(f"unknown network {name!r}: choose one of {', '.join(NETWORKS)}")
    return NETWORKS[name] if width is None else partial(NETWORKS[name], width=width)


def own_width(name: str) -> int:
    """The width that a network of ours has unless another one is given."""
    width: int = inspect.signature(NETWORKS[name]).parameters["width"].default
    return width


def draw_weights_(
    network: nn.Module, generator: Generator, negative_slope: float = 0.0
) -> nn.Module:
    """Kaiming: w ~ N(0, 2/fan_in), biases 0; the last layer, before no ReLU, N(0, 1/fan_in)."""
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            last = bool(linear) and module is linear[-1]
            nn.init.kaiming_normal_(
                module.weight,
                a=negative_slope,
                nonlinearity="linear" if last else "leaky_relu",
                generator=generator,
            )
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return network


def build(
    factory: NetworkFactory,
    in_shape: tuple[int, ...],
    n_classes: int,
    generator: Generator,
    device: torch.device | str = "cpu",
) -> nn.Module:
    """A network of any factory, reproducible even if its layers draw from torch's global state."""
    with global_draws_from(generator):
        network = factory(in_shape, n_classes, generator)
    if torch.device(device).type == "cpu":
        check_safe_on_cpu(network)
    # Faster convolutions at the same results; a no-op for networks without images.
    return network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def check_safe_on_cpu(network: nn.Module) -> None:
    """Refuse what makes torch's CPU library write outside its memory (oneDNN issue 6035): strided
    1x1 convolutions of fewer than 16 channels in channels_last order.
    """
    for name, module in network.named_modules():
        if (
            isinstance(module, nn.Conv2d)
            and module.in_channels < 16
            and set(module.kernel_size) == {1}
            and max(module.stride) > 1
        ):
            raise ValueError(
                f"layer {name} of the network is a strided 1x1 convolution of {module.in_channels} "
                "channels, which can crash on a CPU: give it at least 16 channels, or take every "
                "second pixel before a convolution without stride"
            )


def _conv_relu(c_in: int, c_out: int) -> list[nn.Module]:
    return [
        nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(c_out),
        nn.ReLU(inplace=True),
    ]


def _image_channels(in_shape: tuple[int, ...], smallest: int, name: str) -> int:
    if len(in_shape) != 3:
        raise ValueError(f"{name} takes images (channels, height, width), not shape {in_shape}")
    if min(in_shape[1:]) < smallest:
        raise ValueError(
            f"{name} takes images of at least {smallest}x{smallest}, "
            f"not {in_shape[1]}x{in_shape[2]}"
        )
    return in_shape[0]
