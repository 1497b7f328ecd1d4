"""Labels that are left out in turn: nothing of them is known where they are scored."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor, nn

from saas_ssl.algorithm.partially_labelled import UNLABELLED, PartiallyLabelled
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.training.held_out import Evidence, Scored, draw_folds, infer_with_held_out, without
from saas_ssl.training.pipeline import infer_posterior, initial_posterior
from saas_ssl.training.problem import Problem, prepare
from small_problems import features, with_
from toy import HiddenLayer


def problem_of(data: PartiallyLabelled | None = None, **changes: object) -> Problem:
    return prepare(data or features(), with_(**changes), seed=1)


def scored(problem: Problem, folds: int, **options: object) -> list[Scored]:
    return list(infer_with_held_out(problem, folds, initial_posterior(problem), **options))  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 9), min_size=2, max_size=4), st.integers(2, 6), st.integers(0, 99))
def test_folds_have_like_shares_and_leave_every_class_a_label(
    counts: list[int], folds: int, seed: int
) -> None:
    y = torch.cat([torch.full((n,), k) for k, n in enumerate(counts)])
    data = PartiallyLabelled(
        torch.rand(len(y), 2), y, [str(k) for k in range(len(counts))], ["r"] * len(y)
    )
    fold = draw_folds(data, folds, generator_at(seed), torch.zeros(len(data.y), dtype=torch.bool))
    for k, n in enumerate(counts):
        own = fold[y == k]
        if n == 1:
            assert own.tolist() == [-1]
            continue
        sizes = torch.bincount(own, minlength=folds)
        assert sizes.max() - sizes.min() <= 1
        assert sizes.max() < n


def test_without_folds_it_is_plain_phase_one() -> None:
    problem = problem_of(outer_iterations=3)
    for outer, ours in zip(infer_posterior(problem), scored(problem, 0), strict=True):
        assert torch.equal(outer.P_u, ours.outer.P_u)
        assert outer.changed == ours.outer.changed
        assert outer.cumulative_loss == pytest.approx(ours.outer.cumulative_loss, rel=1e-6)
        assert len(ours.held_out) == len(ours.s_h) == 0
        torch.testing.assert_close(
            ours.s_u, -outer.dP_u * problem.B / problem.settings.inner_epochs
        )
        assert ours.passes == problem.passes(problem.settings.inner_epochs)


def test_each_label_is_left_out_once_after_the_first_iteration() -> None:
    problem = problem_of(features(labelled_per_class=6), outer_iterations=4)
    parts = [part.held_out for part in scored(problem, 3)]
    assert len(parts[0]) == 0
    assert torch.cat(parts).sort().values.tolist() == list(range(18))
    assert [len(part) for part in parts[1:]] == [6, 6, 6]
    # With no iteration to spare the first leaves labels out, too, and some are never left out.
    short = [part.held_out for part in scored(problem_of(outer_iterations=2), 3)]
    assert [len(part) for part in short] == [4, 4]


def test_the_unlabelled_rows_keep_their_places() -> None:
    problem = problem_of(outer_iterations=2)
    for part in scored(problem, 2):
        N_u, K = len(problem.training.unlabelled_rows), 3
        assert part.outer.P_u.shape == part.outer.dP_u.shape == part.s_u.shape == (N_u, K)
        assert part.s_h.shape == (len(part.held_out), K)
        torch.testing.assert_close(part.outer.P_u.sum(dim=1), torch.ones(N_u))
        assert (part.s_u < 0).all()
        assert (part.s_h < 0).all()
        passes = problem.passes(2) + 2 * len(part.held_out)
        assert part.passes == passes - 2 * problem.steps * (problem.B_l - len_known(problem, part))


def len_known(problem: Problem, part: Scored) -> int:
    return min(problem.B_l, len(problem.training.labelled_rows) - len(part.held_out))


@pytest.mark.parametrize("start", ["uniform", "gaussian"])
def test_a_label_that_is_left_out_changes_nothing(
    start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of sample for certain: other labels in the fold, the same scores bit for bit."""
    data = features(labelled_per_class=5)
    rows = data.labelled_rows
    fold = torch.arange(len(rows)) // 3 % 5  # three rows in a fold, one of each class
    monkeypatch.setattr("saas_ssl.training.held_out.draw_folds", lambda *_: fold)
    y = data.y.clone()
    y[rows[fold == 0]] = (y[rows[fold == 0]] + 1) % 3
    first, other = (
        scored(problem_of(d, outer_iterations=2, initial_posterior=start), 5)
        for d in (data, data.with_labels(y))
    )
    assert torch.equal(first[0].s_h, other[0].s_h)
    assert torch.equal(first[0].outer.P_u, other[0].outer.P_u)
    # They are known again in the next iteration, where they matter.
    assert not torch.equal(first[1].s_h, other[1].s_h)


def test_a_run_goes_on_from_any_iteration() -> None:
    problem = problem_of(outer_iterations=4)
    whole = scored(problem, 3)
    changes = [part.outer.changed for part in whole[:2]]
    rest = list(infer_with_held_out(problem, 3, whole[1].outer.P_u, changes))
    assert len(rest) == 2
    for a, b in zip(whole[2:], rest, strict=True):
        assert torch.equal(a.s_u, b.s_u)
        assert torch.equal(a.s_h, b.s_h)
        assert torch.equal(a.held_out, b.held_out)


def test_fewer_labels_than_a_batch_make_a_smaller_batch() -> None:
    problem = problem_of(features(labelled_per_class=2), labelled_batch_size=6)
    part = without(problem, problem.training.labelled_rows[:3])
    assert part.B_l == 3
    assert (part.training.y[problem.training.labelled_rows[:3]] == UNLABELLED).all()
    assert len(scored(problem, 5)) == 2


def part_of(m: int, value: float, held_out: list[int]) -> Scored:
    problem = problem_of(outer_iterations=1)
    outer = next(infer_posterior(problem))
    s_u = torch.full((4, 3), value)
    s_h = torch.full((len(held_out), 3), value)
    return Scored(replace(outer, m=m), s_u, torch.tensor(held_out, dtype=torch.int64), s_h, 0)


def test_evidence_averages_the_late_iterations_and_keeps_the_last_word_on_labels() -> None:
    def level(x: Tensor) -> float:
        assert (x == x.flatten()[0]).all()
        return float(x.flatten()[0])

    seen = Evidence.none(4, 2, 3)
    assert seen.at.tolist() == [-1, -1]
    values = [-9.0, -1.0, -2.0, -3.0, -4.0, -5.0]
    for m, value in enumerate(values):
        seen = seen.and_of(part_of(m, value, [m % 2] if m else []))
    assert level(seen.s_u) == pytest.approx(-3.0)  # of the last five
    assert level(seen.s_early) == pytest.approx(-5.0)  # of the first two
    assert level(seen.s_once) == -1.0  # of the second alone
    assert seen.s_once.shape == (4,)
    assert seen.at.tolist() == [4, 5]
    assert seen.s_l[:, 0].tolist() == [-4.0, -5.0]
    later = seen.and_of(part_of(6, -8.0, []))
    assert level(later.s_u) == pytest.approx(-3.0 - 5.0 / 5)
    assert level(later.s_early) == pytest.approx(-5.0)


def test_nothing_but_certainty_is_asked_of_rows_that_are_left_out() -> None:
    """Without the entropy they teach the network nothing, whatever they look like."""

    def factory(in_shape: tuple[int, ...], n_classes: int, generator: Generator) -> nn.Module:
        return HiddenLayer(in_shape[0], 8, n_classes, generator).float()  # no batch statistics

    def second(entropy_weight: float, spoil: bool) -> Scored:
        settings = with_(outer_iterations=3, entropy_weight=entropy_weight)
        problem = prepare(features(), settings, seed=1, network=factory)
        data = problem.training
        fold = draw_folds(data, 2, generator_at(1, "folds"), problem.reviewed)
        x = data.x.clone()
        if spoil:
            x[data.labelled_rows[fold == 0]] += 3.0
        problem = replace(problem, training=replace(data, x=x))
        P_u = initial_posterior(problem)
        return next(infer_with_held_out(problem, 2, P_u, changes=[0.5]))

    plain, spoilt = (second(0.0, spoil) for spoil in (False, True))
    assert torch.equal(plain.s_u, spoilt.s_u)
    assert not torch.allclose(plain.s_h, spoilt.s_h)
    assert not torch.equal(second(1.0, False).s_u, second(1.0, True).s_u)
