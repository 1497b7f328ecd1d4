import pytest
import torch

from saas_ssl.algorithm.posterior import (
    INITIAL_POSTERIORS,
    changed_share,
    gaussian_posterior,
    is_stable,
    random_class_posterior,
)
from saas_ssl.algorithm.randomness import generator_at


@pytest.mark.parametrize("name", INITIAL_POSTERIORS)
def test_initial_posteriors_lie_on_the_simplex_and_follow_the_generator(name: str) -> None:
    draw = INITIAL_POSTERIORS[name]
    P_u = draw(50, 10, 0.05, generator_at(0))
    assert (P_u >= 0.05 - 1e-6).all()
    torch.testing.assert_close(P_u.sum(1), torch.ones(50))
    assert torch.equal(P_u, draw(50, 10, 0.05, generator_at(0)))
    other = draw(50, 10, 0.05, generator_at(1))
    assert torch.equal(P_u, other) == (name == "uniform")


def test_random_class_is_the_authors_start() -> None:
    P_u = random_class_posterior(200, 10, 0.05, generator_at(0))
    torch.testing.assert_close(P_u.max(dim=1).values, torch.full((200,), 0.5))
    torch.testing.assert_close(P_u.min(dim=1).values, torch.full((200,), 1 / 18))
    assert len(P_u.argmax(1).unique()) == 10


def test_uniform_knows_nothing() -> None:
    P_u = INITIAL_POSTERIORS["uniform"](3, 4, 0.05, generator_at(0))
    assert torch.equal(P_u, torch.full((3, 4), 0.25))


def test_gaussian_reaches_every_class() -> None:
    assert len(gaussian_posterior(200, 10, 0.05, generator_at(0)).argmax(1).unique()) == 10


def test_changed_share() -> None:
    before = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    after = torch.tensor([[0.6, 0.4], [0.7, 0.3], [0.6, 0.4], [0.3, 0.7]])
    assert changed_share(before, after) == 0.25


def test_stable_means_several_quiet_iterations_in_a_row() -> None:
    assert not is_stable([], 0.1, 2)
    assert not is_stable([0.0], 0.1, 2)
    assert not is_stable([0.0, 0.2, 0.0], 0.1, 2)
    assert is_stable([0.5, 0.05, 0.0], 0.1, 2)
    assert not is_stable([0.0, 0.0, 0.0], 0.0, 2)  # tolerance 0: never
