from functools import partial

import pytest
import torch
from torch import Generator, nn

from saas_ssl.algorithm.network import redraw_
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.vision.networks import (
    NETWORKS,
    PreActivationBlock,
    build,
    conv_large,
    mlp,
    named_factory,
    resnet18,
    small_conv,
)

SHAPES = {"small_conv": (3, 8, 8), "resnet18": (3, 16, 16), "conv_large": (3, 16, 16), "mlp": (7,)}
NARROW = {name: partial(NETWORKS[name], width=8) for name in NETWORKS}


def weights(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def test_parameter_counts() -> None:
    g = generator_at(0)
    assert weights(resnet18((3, 32, 32), 10, g)) == 11_172_170
    assert weights(conv_large((3, 32, 32), 10, g)) == 3_121_802
    assert weights(small_conv((1, 28, 28), 10, g)) == 72_666
    assert weights(small_conv((3, 32, 32), 10, g, width=32)) == 288_746
    assert weights(mlp((64,), 10, g)) == 64 * 128 + 128 * 128 + 4 * 128 + 1290


@pytest.mark.parametrize("name", NETWORKS)
def test_every_weight_gets_a_gradient(name: str) -> None:
    network = build(NARROW[name], SHAPES[name], 4, generator_at(0))
    logits = network(torch.randn(6, *SHAPES[name]))
    assert logits.shape == (6, 4)
    logits.square().sum().backward()
    for parameter in network.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_are_drawn_from_the_generator(name: str) -> None:
    def draw(seed: int) -> dict[str, torch.Tensor]:
        return build(NARROW[name], SHAPES[name], 4, generator_at(seed)).state_dict()

    torch.manual_seed(1)
    one = draw(0)
    torch.manual_seed(2)
    again, other = draw(0), draw(1)
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


def test_the_draw_is_kaiming() -> None:
    network = small_conv((3, 32, 32), 10, generator_at(0), width=64)
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    for layer in convolutions[1:]:
        fan_in = layer.weight[0].numel()
        assert layer.weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.05)
    (last,) = [m for m in network.modules() if isinstance(m, nn.Linear)]
    assert last.weight.std().item() == pytest.approx((1 / 256) ** 0.5, rel=0.05)
    assert not last.bias.any()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 13, 28, 32])
def test_small_conv_takes_any_image_from_8x8_up(channels: int, size: int) -> None:
    network = small_conv((channels, size, size), 5, generator_at(0), width=4)
    assert network(torch.rand(2, channels, size, size)).shape == (2, 5)


class Wrapped(nn.Module):
    """As DistributedDataParallel does: the same tensors under other names."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


@pytest.mark.parametrize("wrap", [lambda n: n, Wrapped, partial(torch.compile, backend="eager")])
def test_redraw_in_place(wrap: "partial[nn.Module]") -> None:
    network = build(NARROW["small_conv"], (3, 8, 8), 4, generator_at(0))
    network(torch.randn(4, 3, 8, 8))  # moves the buffers of the batch normalisation
    wrapped = wrap(network)
    addresses = [p.data_ptr() for p in wrapped.parameters()]
    fresh = build(NARROW["small_conv"], (3, 8, 8), 4, generator_at(1))
    assert redraw_(wrapped, fresh) is wrapped
    assert [p.data_ptr() for p in wrapped.parameters()] == addresses
    for mine, theirs in zip(
        network.state_dict().values(), fresh.state_dict().values(), strict=True
    ):
        assert torch.equal(mine, theirs)


def test_any_factory_is_reproducible_even_if_it_ignores_the_generator() -> None:
    def users_own(in_shape: tuple[int, ...], n_classes: int, _generator: Generator) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(in_shape[0], n_classes))

    one, two = (build(users_own, (5,), 3, generator_at(4)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_the_shortcut_equals_a_strided_convolution() -> None:
    block = PreActivationBlock(16, 32, stride=2)
    assert block.shortcut is not None
    x = torch.randn(2, 16, 9, 9)
    strided = nn.functional.conv2d(x, block.shortcut.weight, stride=2)
    torch.testing.assert_close(block.shortcut(x[:, :, ::2, ::2]), strided, atol=1e-5, rtol=1e-5)


def test_a_layer_that_crashes_cpus_is_refused() -> None:
    def narrow(_shape: tuple[int, ...], _n_classes: int, _generator: Generator) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 16, 1, stride=2))

    with pytest.raises(
        ValueError, match="layer 1 of the network is a strided 1x1 convolution of 8"
    ):
        build(narrow, (3, 16, 16), 4, generator_at(0))


def test_convolutions_run_in_channels_last() -> None:
    network = build(small_conv, (3, 8, 8), 4, generator_at(0))
    x = torch.rand(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    first = next(network.children())
    assert isinstance(first, nn.Conv2d)
    assert first.weight.is_contiguous(memory_format=torch.channels_last)
    assert first(x).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: named_factory("resnet50"), "unknown network 'resnet50': choose one of small_conv"),
        (lambda: small_conv((3, 7, 9), 4, generator_at(0)), "at least 8x8, not 7x9"),
        (lambda: conv_large((3, 8, 8), 4, generator_at(0)), "at least 12x12"),
        (lambda: resnet18((64,), 4, generator_at(0)), "takes images"),
    ],
)
def test_wrong_shapes_and_names(call: "partial[None]", sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
