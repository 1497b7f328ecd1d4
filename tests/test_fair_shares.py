"""Reviewed rows teach what a class looks like, and not how frequent it is."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from saas_ssl import generator_at, infer_posterior, keep_labels, named_preset, prepare, read_digits
from saas_ssl.algorithm import phase_one, phase_two
from saas_ssl.data import PartiallyLabelled
from saas_ssl.data.fair_shares import with_fair_shares
from saas_ssl.held_out import without
from saas_ssl.schedules import SCHEDULES, fixed_length
from samples import refusal
from toy import HiddenLayer, identity_view, last


def data_of(y: Tensor, K: int) -> PartiallyLabelled:
    x = torch.randn(len(y), 3, generator=generator_at(0), dtype=torch.float64)
    return PartiallyLabelled(x, y, [str(k) for k in range(K)], [str(row) for row in range(len(y))])


def passes(data: PartiallyLabelled) -> Tensor:
    """How often a pass over the labelled rows has each class."""
    return torch.bincount(data.y[data.labelled_stream], minlength=data.n_classes)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=2, max_size=5),
    st.randoms(use_true_random=False),
)
def test_classes_keep_the_shares_of_the_fair_labels(
    counts: list[tuple[int, int]], random: object
) -> None:
    rows = [(k, how) for k, pair in enumerate(counts) for how in (0, 1) for _ in range(pair[how])]
    rows += [(-1, 0)] * 3
    random.shuffle(rows)  # type: ignore[attr-defined]
    y, reviewed = torch.tensor([row[0] for row in rows]), torch.tensor([row[1] > 0 for row in rows])
    fair = torch.tensor([f for f, _ in counts])
    data = with_fair_shares(data_of(y, len(counts)), reviewed)
    # The same multiple of every class, but for rounding, and the least that leaves no row out.
    c = max((f + r) / f for f, r in counts)
    assert ((passes(data) - fair * c).abs() <= 0.5).all()
    assert data.labelled_stream.unique().equal(data.labelled_rows)
    for k in range(len(counts)):
        times = torch.bincount(data.labelled_stream, minlength=len(y))[y == k]
        assert times.max() - times.min() <= 1


def test_without_a_review_nothing_is_repeated() -> None:
    data = data_of(torch.tensor([0, 0, 0, 1, -1]), 2)
    assert with_fair_shares(data, torch.zeros(5, dtype=torch.bool)) is data
    # "Cannot tell" gives no label, so there is nothing to weigh.
    assert with_fair_shares(data, torch.tensor([False, False, False, False, True])) is data


def test_a_class_that_only_a_review_has_found_is_rare() -> None:
    data = data_of(torch.tensor([0, 0, 0, 0, 1, 1, -1]), 2)
    reviewed = torch.tensor([False] * 4 + [True] * 2 + [False])
    assert passes(with_fair_shares(data, reviewed)).tolist() == [8, 2]


def test_if_all_were_reviewed_no_class_is_preferred() -> None:
    data = data_of(torch.tensor([0, 0, 0, 1, -1]), 2)
    assert passes(with_fair_shares(data, torch.ones(5, dtype=torch.bool))).tolist() == [3, 3]


@pytest.mark.parametrize("repeats", [[1, 0, 1, 1], [1, 1, 1], [1.0, 1.0, 1.0, 1.0]])
def test_a_labelled_row_comes_at_least_once(repeats: list[float]) -> None:
    data = data_of(torch.tensor([0, 1, 0, -1]), 2)
    assert "repeats" in refusal(lambda: replace(data, repeats=torch.tensor(repeats)))


def test_new_labels_are_repeated_no_more() -> None:
    data = replace(data_of(torch.tensor([0, 1, -1]), 2), repeats=torch.tensor([3, 1, 1]))
    assert data.with_labels(torch.tensor([1, 0, -1])).labelled_stream.tolist() == [0, 1]
    assert data.take(torch.tensor([0, 2])).labelled_stream.tolist() == [0]


def test_repeating_a_row_is_having_it_several_times() -> None:
    """Both phases: bit for bit what they are with copies of the rows."""
    y = torch.tensor([0, -1, 1, -1, 0, 2, -1, -1])
    once = data_of(y, 3)
    times = torch.tensor([1, 1, 2, 1, 1, 3, 1, 1])
    copied = torch.arange(len(y)).repeat_interleave(times)
    results = []
    for data in (replace(once, repeats=times), once.take(copied)):

        def draw(generator: torch.Generator) -> torch.nn.Module:
            return HiddenLayer(3, 4, 3, generator)

        outer = last(phase_one(data, draw, identity_view, seed=1, T=3, M=2, eta_w=0.1, B=2, B_l=3))
        rate = fixed_length(0.1, 3, SCHEDULES["constant"])
        for P_u in (outer.P_u, None):
            epoch = last(phase_two(data, P_u, draw, identity_view, seed=1, rate=rate, B=2, B_l=3))
            results.append([outer.P_u, *(w.detach().clone() for w in epoch.w.parameters())])
    for ours, theirs in zip(results[:2], results[2:], strict=True):
        assert all(map(torch.equal, ours, theirs))


def test_rows_that_are_left_out_leave_the_shares_alone() -> None:
    y = torch.tensor([0] * 6 + [1] * 9 + [-1] * 6)
    reviewed = torch.zeros(len(y), dtype=torch.bool)
    reviewed[9:15] = True  # six of class 1
    settings = named_preset("digits").changed(network="mlp", augmentation="none", batch_size=3)
    settings = settings.changed(classifier_augmentation="none", labelled_batch_size=3)
    problem = prepare(data_of(y, 2), settings, seed=1, reviewed=reviewed)
    assert passes(problem.training).tolist() == [18, 9]
    part = without(problem, torch.tensor([0, 6]))
    assert passes(part.training).tolist() == [20, 8]  # 5 and 2 fair ones, 8 of class 1 in all


@pytest.mark.slow
def test_a_review_of_doubtful_rows_makes_the_other_labels_better() -> None:
    full, preset = read_digits(), named_preset("digits")
    right = torch.zeros(2, 3)
    for n, seed in enumerate((0, 5, 7)):
        data = keep_labels(full, 50, generator_at(seed, "labels"))
        before = last(infer_posterior(prepare(data, preset, seed)))
        two = before.dP_u.topk(2, largest=False).values
        doubtful = data.unlabelled_rows[(two[:, 1] - two[:, 0]).argsort()[:60]]
        y, reviewed = data.y.clone(), torch.zeros(len(data.y), dtype=torch.bool)
        y[doubtful], reviewed[doubtful] = full.y[doubtful], True
        problem = prepare(data.with_labels(y), preset, seed, reviewed=reviewed)
        after = last(infer_posterior(problem))
        rest = y[data.unlabelled_rows] < 0
        P_u = before.P_u[rest], after.P_u
        truth = full.y[(y < 0).nonzero().squeeze(1)]
        right[:, n] = torch.stack([(p.argmax(dim=1) == truth).float().mean() for p in P_u])
    assert right[1].mean() > right[0].mean()
