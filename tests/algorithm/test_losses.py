import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from saas_ssl.algorithm.losses import cross_entropy, entropy, log_softmax
from saas_ssl.algorithm.randomness import generator_at

seeds = st.integers(0, 10_000)


@given(seeds)
def test_cross_entropy_with_hard_labels_is_torchs_own(seed: int) -> None:
    generator = generator_at(seed)
    logits = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(4, (6,), generator=generator)
    ours = cross_entropy(log_softmax(logits), torch.nn.functional.one_hot(y, 4).double())
    torch.testing.assert_close(ours, torch.nn.functional.cross_entropy(logits, y))


@given(seeds)
def test_entropy_is_that_of_the_distribution(seed: int) -> None:
    logits = 5 * torch.randn(6, 4, generator=generator_at(seed), dtype=torch.float64)
    expected = torch.distributions.Categorical(logits=logits).entropy().mean()
    torch.testing.assert_close(entropy(log_softmax(logits)), expected)


def test_gradients_flow_into_the_network_and_not_into_the_posterior() -> None:
    logits = torch.randn(3, 4, requires_grad=True)
    P = torch.full((3, 4), 0.25, requires_grad=True)
    cross_entropy(log_softmax(logits), P).backward()
    assert logits.grad is not None
    assert logits.grad.abs().sum() > 0
    assert P.grad is None


def test_outputs_of_another_shape_are_not_broadcast() -> None:
    with pytest.raises(ValueError, match=r"outputs of shape \(3, 1\), not \(3, 4\)"):
        cross_entropy(torch.zeros(3, 1), torch.full((3, 4), 0.25))


def test_the_posterior_may_live_on_another_device_than_the_outputs() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        log_f = torch.zeros(3, 4, device="cuda")
        assert cross_entropy(log_f, torch.zeros(3, 4)).device.type == "cuda"


def test_certain_outputs_have_no_nan() -> None:
    log_f = log_softmax(torch.tensor([[1e4, 0.0], [0.0, 1e4]]))
    assert entropy(log_f).item() == 0.0


def test_half_precision_networks_are_scored_in_single() -> None:
    assert log_softmax(torch.zeros(2, 3, dtype=torch.bfloat16)).dtype == torch.float32
    assert log_softmax(torch.zeros(2, 3, dtype=torch.float64)).dtype == torch.float64
