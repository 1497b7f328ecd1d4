"""The first rows of a review are doubtful, and unlike each other and what is known."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saas_ssl.training.outputs import last_features, predict
from saas_ssl.training.problem import prepare
from saas_ssl.trust import ranking
from saas_ssl.trust.ranking import candidates, review_order
from saas_ssl.vision.networks import NETWORKS
from small_problems import FEATURES, features


def slow_order(u: torch.Tensor, h: torch.Tensor, h_known: torch.Tensor) -> list[int]:
    """argmax u d, one row after the other, with every distance computed anew."""
    h, h_known = (part.double() / part.double().norm(dim=1, keepdim=True) for part in (h, h_known))
    chosen = list[int]()
    for _ in range(len(u)):
        gains = [
            -1.0
            if i in chosen
            else float(u[i])
            * min([2.0, *(float((h[i] - other).norm()) for other in [*h_known, *h[chosen]])])
            for i in range(len(u))
        ]
        chosen.append(gains.index(max(gains)))
    return chosen


@given(seed=st.integers(0, 10_000), n=st.integers(1, 12), known=st.integers(1, 3))
def test_it_is_the_greedy_order_of_uncertainty_times_distance(
    seed: int, n: int, known: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(n, generator=generator)
    h, h_known = torch.randn(n, 3, generator=generator), torch.randn(known, 3, generator=generator)
    order = review_order(u, h[candidates(u)], h_known)
    assert order.tolist() == slow_order(u, h, h_known)


def test_near_duplicates_do_not_follow_each_other() -> None:
    """Fifty copies of the most doubtful row, and fifty others, each in a direction of its own."""
    one, *others, known = torch.eye(52)
    h = torch.stack([one] * 50 + others)
    u = torch.cat([torch.full((50,), 0.6), torch.linspace(0.5, 0.3, 50)])
    first = review_order(u, h[candidates(u)], known[None])[:51].tolist()
    assert first[0] == 0
    assert sorted(first[1:]) == list(range(50, 100))
    assert first[1:] == sorted(first[1:])  # as far apart as each other: the more doubtful first


def test_what_looks_like_a_given_row_comes_later() -> None:
    u, h = torch.tensor([0.5, 0.4]), torch.eye(3)[:2]
    assert review_order(u, h, torch.tensor([[0.0, 0.0, 1.0]])).tolist() == [0, 1]
    assert review_order(u, h, torch.tensor([[5.0, 0.0, 0.0]])).tolist() == [1, 0]


def test_every_row_has_one_place_even_if_nothing_is_doubtful() -> None:
    h = torch.ones(5, 2)  # all alike
    for u in (torch.zeros(5), torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])):
        assert sorted(review_order(u, h, h[:1]).tolist()) == list(range(5))


def test_the_rest_is_ordered_by_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "_RANKED", 3)
    monkeypatch.setattr(ranking, "_CANDIDATES", 5)
    generator = torch.Generator().manual_seed(0)
    u, h = torch.rand(40, generator=generator), torch.randn(40, 4, generator=generator)
    order = review_order(u, h[candidates(u)], h[:2])
    assert order.sort().values.tolist() == list(range(40))
    assert set(order[:3].tolist()) <= set(candidates(u).tolist())
    assert u[order[3:]].tolist() == sorted(u[order[3:]].tolist(), reverse=True)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_features_are_what_the_last_layer_sees(name: str) -> None:
    data = features()
    if name != "mlp":
        images = (255 * torch.rand(len(data.y), 1, 16, 16)).to(torch.uint8)
        data = type(data)(images, data.y, data.classes, data.ids)
    settings = FEATURES.changed(network=name, width=4, augmentation="none")
    problem = prepare(data, settings, seed=0)
    network = problem.new_network(torch.Generator())
    rows = torch.tensor([3, 1, 7])
    h = last_features(network, problem.preprocessing, data.x, rows)
    last = list(network.children())[-1]
    expected = predict(network, problem.preprocessing, data.x, rows)
    torch.testing.assert_close(last(h).softmax(dim=1), expected)
