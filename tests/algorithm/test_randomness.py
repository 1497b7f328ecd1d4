import numpy as np
import pytest
import torch

from saas_ssl.algorithm.randomness import generator_at, global_draws_from


def draw(*arguments: str | int) -> list[float]:
    seed, *place = arguments
    assert isinstance(seed, int | np.integer)
    return torch.rand(4, generator=generator_at(int(seed), *place)).tolist()


def test_each_place_and_seed_has_its_own_draws() -> None:
    draws = [draw(0), draw(1), draw(0, "a"), draw(0, "b"), draw(0, "a", 1), draw(0, "a", "1")]
    assert len({tuple(values) for values in draws}) == len(draws)
    assert draw(0, "a", 1) == draw(0, "a", 1)


def test_numpy_integers_are_as_good_as_python_s() -> None:
    ours = torch.rand(4, generator=generator_at(3, "x", 2))
    theirs = torch.rand(4, generator=generator_at(np.int64(3), "x", np.int32(2)))  # type: ignore[arg-type]
    assert torch.equal(ours, theirs)


def test_a_seed_that_is_no_integer_is_refused() -> None:
    with pytest.raises(TypeError):
        generator_at(1.5)  # type: ignore[arg-type]


def test_global_state_is_seeded_inside_and_restored_outside() -> None:
    before = torch.get_rng_state()
    with global_draws_from(generator_at(0)):
        first = torch.rand(3)
    with global_draws_from(generator_at(0)):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), before)
