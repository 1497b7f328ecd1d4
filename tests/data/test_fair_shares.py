"""Reviewed rows teach what a class looks like, and not how frequent it is."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from saas_ssl import generator_at, infer_posterior, keep_labels, named_preset, prepare, read_digits
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.phases import phase_one
from saas_ssl.data.fair_shares import with_fair_shares
from saas_ssl.training.held_out import without
from saas_ssl.training.pipeline import train_classifier
from saas_ssl.training.problem import Problem
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
    """Bit for bit what phase one does with copies of the rows."""
    y = torch.tensor([0, -1, 1, -1, 0, 2, -1, -1])
    once = data_of(y, 3)
    times = torch.tensor([1, 1, 2, 1, 1, 3, 1, 1])
    copied = torch.arange(len(y)).repeat_interleave(times)

    def draw(generator: torch.Generator) -> torch.nn.Module:
        return HiddenLayer(3, 4, 3, generator)

    ours, theirs, plain = (
        last(phase_one(data, draw, identity_view, seed=1, T=3, M=2, eta_w=0.1, B=2, B_l=3))
        for data in (replace(once, repeats=times), once.take(copied), once)
    )
    assert torch.equal(ours.P_u, theirs.P_u)
    assert all(torch.equal(ours.w[name], theirs.w[name]) for name in ours.w)
    assert not torch.equal(ours.P_u, plain.P_u)


def reviewed_problem() -> Problem:
    y = torch.tensor([0] * 6 + [1] * 9 + [-1] * 6)
    reviewed = torch.zeros(len(y), dtype=torch.bool)
    reviewed[9:15] = True  # six of class 1
    settings = named_preset("digits").changed(network="mlp", augmentation="none", batch_size=3)
    settings = settings.changed(
        classifier_augmentation="none", labelled_batch_size=3, outer_iterations=2
    )
    return prepare(data_of(y, 2), settings, seed=1, reviewed=reviewed)


def by_hand(problem: Problem, times: list[int]) -> Problem:
    """The same, but that nobody is told of a review: rows are repeated as often as this says."""
    repeats = torch.tensor(times + [1] * (len(problem.training.y) - len(times)))
    unknown = torch.zeros_like(problem.reviewed)
    return replace(problem, training=replace(problem.training, repeats=repeats), reviewed=unknown)


def test_phase_one_keeps_the_shares() -> None:
    problem = reviewed_problem()
    same = by_hand(problem, [3] * 6 + [1] * 9)  # 6 : 3 as among those that are fair
    assert torch.equal(last(infer_posterior(problem)).P_u, last(infer_posterior(same)).P_u)
    assert not torch.equal(
        last(infer_posterior(problem)).P_u, last(infer_posterior(by_hand(problem, [1] * 15))).P_u
    )


def test_rows_that_are_left_out_leave_the_shares_alone() -> None:
    problem = without(reviewed_problem(), torch.tensor([0, 6]))
    same = by_hand(problem, [1] + [4] * 5 + [1] * 9)  # 5 : 2 of the fair ones, 8 of class 1 in all
    P_u = torch.full((len(problem.training.unlabelled_rows), 2), 0.5)
    ours, theirs = (last(infer_posterior(one, P_u)).P_u for one in (problem, same))
    assert torch.equal(ours, theirs)


def test_phase_two_has_each_row_once() -> None:
    problem = reviewed_problem()
    P_u = last(infer_posterior(problem)).P_u
    ours, same = (
        last(train_classifier(one, P_u)).w.state_dict()
        for one in (problem, by_hand(problem, [3] * 15))
    )
    assert all(torch.equal(ours[name], same[name]) for name in ours)


def test_a_batch_may_be_as_long_as_the_stream() -> None:
    """Without B_l it is |B|, or the whole stream: more than there are different rows."""
    data = replace(data_of(torch.tensor([0, 1, -1, -1, -1, -1]), 2), repeats=torch.full((6,), 3))
    copied = data.take(torch.tensor([0, 0, 0, 1, 1, 1, 2, 3, 4, 5]))

    def draw(generator: torch.Generator) -> torch.nn.Module:
        return HiddenLayer(3, 4, 2, generator)

    ours, theirs = (
        last(phase_one(one, draw, identity_view, seed=1, T=2, M=1, B=4)) for one in (data, copied)
    )
    assert torch.equal(ours.P_u, theirs.P_u)


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
