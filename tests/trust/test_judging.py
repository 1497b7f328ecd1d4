"""What is said of labels: intervals, suspects, outliers, shifted classes."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.posterior import hard_labels
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.data.splits import keep_labels
from saas_ssl.sources.digits import read_digits
from saas_ssl.training.held_out import Evidence, infer_with_held_out
from saas_ssl.training.pipeline import initial_posterior
from saas_ssl.training.presets import named_preset
from saas_ssl.training.problem import prepare
from saas_ssl.trust.calibration import calibration_error
from saas_ssl.trust.expectation import class_shift, in_numbers, measured
from saas_ssl.trust.judging import Scrutiny, Trust, all_probabilities, judge

K = 4


def scores(y: Tensor, sharpness: float = 3.0, seed: int = 0) -> Tensor:
    """Mean log-probabilities of rows that were learnt well under their labels."""
    noise = torch.randn(len(y), K, generator=generator_at(seed, "noise"))
    return (sharpness * torch.nn.functional.one_hot(y, K) + noise).log_softmax(dim=1)


def world(
    N_l: int = 80, N_u: int = 400, strange: int = 0, left_out: int | None = None
) -> tuple[PartiallyLabelled, Evidence, Tensor, Tensor]:
    """(Data, what was seen, inferred labels, outputs of the baseline); the last rows strange."""
    y = torch.arange(N_l) % K
    truth = torch.arange(N_u) % K
    data = PartiallyLabelled(
        torch.rand(N_l + N_u, 2),
        torch.cat([y, torch.full((N_u,), -1)]),
        [f"class {k}" for k in range(K)],
        [str(row) for row in range(N_l + N_u)],
    )
    s_u, s_l, at = scores(truth), scores(y, seed=1), torch.ones(N_l, dtype=torch.int64)
    if strange:
        s_u[-strange:] = (0.1 * torch.randn(strange, K, generator=generator_at(2))).log_softmax(1)
    if left_out is not None:
        at[left_out:] = -1
    seen = Evidence(s_u, s_u, s_u.max(dim=1).values, s_l, at)
    return data, seen, s_u.argmax(dim=1), s_u.softmax(dim=1)


def judged(*made: Any) -> Trust:
    data, seen, inferred, f = made
    return judge(data, inferred, seen, f, 0.95)


def test_a_given_label_that_its_scores_contradict_is_suspected() -> None:
    data, seen, inferred, f = world()
    right = judged(data, seen, inferred, f)
    y = data.y.clone()
    y[5] = (y[5] + 1) % K
    trust = judged(data.with_labels(y), seen, inferred, f)
    added = set(trust.suspects) - set(right.suspects)
    assert added == {5}
    suspect = trust.suspects[5]
    assert suspect.rival == 5 % K
    assert suspect.rival_probability > 4 * suspect.probability
    assert len(right.suspects) < 5


def test_a_label_that_is_not_beaten_by_far_is_not_suspected() -> None:
    """Not even among many wrong labels, where a mistake is likely for every one that is beaten."""
    data, seen, inferred, f = world(N_l=400)
    y = data.y.clone()
    y[:400:5] = (y[:400:5] + 1) % K
    trust = judged(data.with_labels(y), seen, inferred, f)
    times = trust.p_l.max(dim=1).values / trust.p_l.gather(1, y[:400, None]).squeeze(1)
    likely = trust.calibration.mistaken(seen.s_l, y[:400]) > 0.03
    assert (likely & (times > 1.5) & (times < 4)).sum() > 5
    assert set(trust.suspects) == set((likely & (times > 4)).nonzero().squeeze(1).tolist())
    assert len(trust.suspects) > 50


def test_where_scores_are_often_wrong_they_do_not_make_labels_suspect() -> None:
    """Labels follow the scores, so all contradictions are what such scores promise."""
    data, seen, inferred, f = world(N_l=800)
    s_l = scores(data.y[:800], sharpness=1.0, seed=1)
    y = torch.multinomial((1.75 * s_l).softmax(dim=1), 1, generator=generator_at(3)).squeeze(1)
    seen = replace(seen, s_l=s_l)
    alike = data.with_labels(torch.cat([y, data.y[800:]]))
    trust = judged(alike, seen, inferred, f)
    own = trust.p_l.gather(1, y[:, None]).squeeze(1)
    contradicted = int((trust.p_l.max(dim=1).values > 4 * own).sum())
    assert contradicted > 50
    assert len(trust.suspects) < 0.15 * contradicted
    wrong = torch.arange(0, 800, 10)
    y[wrong] = (y[wrong] + 1 + torch.randint(K - 1, (80,), generator=generator_at(4))) % K
    noisy = data.with_labels(torch.cat([y, data.y[800:]]))
    assert len(judged(noisy, seen, inferred, f).suspects) > 50


def test_labels_that_were_never_left_out_are_not_judged() -> None:
    data, seen, inferred, f = world(left_out=40)
    y = data.y.clone()
    y[[5, 50]] = (y[[5, 50]] + 1) % K
    trust = judged(data.with_labels(y), seen, inferred, f)
    assert 5 in trust.suspects
    assert not [row for row in trust.suspects if row >= 40]
    p = all_probabilities(trust, data, data.labelled_rows)
    assert p[:40].isfinite().all()
    assert p[40:80].isnan().all()
    torch.testing.assert_close(p[80:], trust.p_u)
    assert len(trust.evidence[0]) == 40


def test_the_first_outer_iteration_counts_only_without_others() -> None:
    data, seen, inferred, f = world()
    seen.at[:60] = 0
    assert len(judged(data, seen, inferred, f).evidence[0]) == 20
    seen.at[:] = 0
    assert len(judged(data, seen, inferred, f).evidence[0]) == 80


def test_rows_that_are_slow_under_every_class_are_outliers() -> None:
    clean = judged(*world())
    assert not clean.outliers.any()  # only what is beyond expectation
    mixed = judged(*world(strange=60))
    assert mixed.outliers.sum() > 25
    assert mixed.outliers[-60:].sum() == mixed.outliers.sum()
    assert mixed.strangeness[-60:].mean() > 0.8
    assert ((mixed.strangeness >= 0) & (mixed.strangeness <= 1)).all()


def test_strangeness_is_the_mean_of_two_ranks() -> None:
    data, seen, _, _ = world(N_u=3)
    inferred = torch.tensor([0, 1, 2])
    early = torch.tensor([[-3.0, -1, -1, -1], [-1, -1.0, -1, -1], [-1, -1, -2.0, -1]])
    f = torch.tensor([[0.5, 0, 0, 0], [0, 0.1, 0, 0], [0, 0, 0.9, 0]])
    trust = judge(data, inferred, replace(seen, s_early=early), f, 0.95)
    # Slowest, then second, then fastest at first; improbable: second, first, last.
    torch.testing.assert_close(trust.strangeness, torch.tensor([0.75, 0.5, 0.25]))


def test_the_accepted_rows_are_judged_by_those_that_would_have_been() -> None:
    data, seen, inferred, f = world(N_l=200)
    trust = judge(data, inferred, seen, f, accept=0.9)
    said, right = trust.evidence
    assert right[said >= 0.9].double().mean() > right.double().mean() + 0.03
    numbers = in_numbers(trust, data, inferred, 0.9)
    assert numbers["accepted"]["low"] > numbers["all"]["low"] + 0.02


def test_the_number_of_outliers_is_judged_by_one_iteration_alone() -> None:
    """As left-out rows are: means over several iterations are less spread than single scores."""
    data, seen, inferred, f = world(N_l=99, N_u=400)
    s_known = seen.s_l.max(dim=1).values.sort().values
    line = (s_known[4] + s_known[3]) / 2  # below the fifth slowest of 99, which is a twentieth
    for beyond, marked in ((29, 0), (49, 20)):  # 400 · (5 + √5)/100 = 28.9 are granted
        s_once = torch.zeros(400)
        s_once[:beyond] = line
        trust = judge(data, inferred, replace(seen, s_once=s_once), f, accept=1.0)
        assert trust.outliers.sum() == marked


def test_a_few_known_rows_cannot_tell_outliers() -> None:
    assert not judged(*world(N_l=36, strange=60)).outliers.any()


def test_what_is_accepted_is_no_outlier() -> None:
    data, seen, inferred, f = world(strange=60)
    trust = judge(data, inferred, seen, f, accept=0.25)
    own = trust.p_u.gather(1, inferred[:, None]).squeeze(1)
    assert (trust.outliers <= (own < 0.25)).all()
    assert trust.outliers.sum() < judged(data, seen, inferred, f).outliers.sum()


def test_without_evidence_nothing_is_marked_and_nothing_is_promised() -> None:
    data, seen, inferred, f = world(strange=60, left_out=0)
    trust = judged(data, seen, inferred, f)
    assert not trust.suspects
    assert not trust.outliers.any()
    numbers = in_numbers(trust, data, inferred, 0.95)
    assert numbers["left_out"] == 0
    assert (numbers["all"]["low"], numbers["all"]["high"]) == (0.0, 1.0)


def test_intervals_hold_the_estimate_and_widen_with_few_labels() -> None:
    def width(N_l: int) -> tuple[float, dict[str, Any]]:
        data, seen, inferred, f = world(N_l=N_l)
        numbers = in_numbers(judged(data, seen, inferred, f), data, inferred, 0.8)
        for share in (numbers["all"], numbers["accepted"]):
            assert share["low"] <= share["estimate"] <= share["high"]
        return numbers["all"]["high"] - numbers["all"]["low"], numbers

    (enough, many), (wide, few) = width(4 * 3), width(4 * 2)
    assert (many["few_labels"], few["few_labels"]) == (False, True)
    assert wide > 1.5 * enough
    assert width(400)[0] < enough / 2


def test_nothing_accepted_has_no_accuracy() -> None:
    data, seen, inferred, f = world()
    trust = judge(data, inferred, seen, f, accept=1.0)
    assert in_numbers(trust, data, inferred, 1.0)["accepted"] is None
    truth = torch.arange(400) % K
    assert measured(trust, f, inferred, truth, 1.0)["accepted_accuracy"] is None  # type: ignore[index]
    assert measured(trust, f, inferred, None, 1.0) is None


def test_what_is_measured_against_the_truth() -> None:
    data, seen, inferred, f = world()
    truth = torch.arange(400) % K
    found = measured(judged(data, seen, inferred, f), f, inferred, truth, 0.95)
    assert found is not None
    assert found["calibration_error"] < 0.08
    assert found["accepted_accuracy"] > 0.9
    assert found["softmax_calibration_error"] != found["calibration_error"]


@pytest.mark.parametrize(
    ("shares", "n", "is_shift"),
    [
        ((0.25, 0.25, 0.25, 0.25), 80, False),
        ((0.30, 0.22, 0.24, 0.24), 80, False),
        ((0.70, 0.10, 0.10, 0.10), 80, True),
        ((0.40, 0.20, 0.20, 0.20), 8, False),  # eight labels cannot tell
    ],
)
def test_shifted_classes_are_told(shares: tuple[float, ...], n: int, is_shift: bool) -> None:
    data = world(N_l=n)[0]
    inferred = torch.repeat_interleave(
        torch.arange(K), torch.tensor([int(400 * s) for s in shares])
    )
    shift = class_shift(data, inferred)
    assert (shift is not None) == is_shift
    if shift is not None:
        assert (shift["class"], shift["given"]) == ("class 0", 0.25)
        assert shift["inferred"] == pytest.approx(0.7)


@pytest.mark.parametrize("wrong", [{"accept": 0.0}, {"accept": 1.5}, {"label_folds": 1}])
def test_impossible_checks_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Scrutiny(**wrong)


def digits(wrong: int, seed: int) -> tuple[Trust, Tensor, Tensor, dict[str, Any], set[int]]:
    """Trust in labels of real digits, of which so many given ones are replaced."""
    full = read_digits(image_size=8)
    data = keep_labels(full, 60, generator_at(seed, "kept labels"))
    rows, y = (
        data.labelled_rows[:: 60 // wrong] if wrong else data.labelled_rows[:0],
        data.y.clone(),
    )
    y[rows] = (y[rows] + 3) % 10
    settings = named_preset("digits").changed(width=8, outer_iterations=6)
    problem = prepare(data.with_labels(y), settings, seed)
    seen = Evidence.none(len(data.unlabelled_rows), 60, 10)
    for part in infer_with_held_out(problem, 5, initial_posterior(problem)):
        seen, P_u = seen.and_of(part), part.outer.P_u
    inferred, truth = hard_labels(P_u), full.y[data.unlabelled_rows]
    trust = judge(problem.training, inferred, seen, P_u, 0.95)
    numbers = in_numbers(trust, problem.data, inferred, 0.95)
    return trust, inferred, truth, numbers, set(rows.tolist())


def test_probabilities_of_digits_are_right_as_often_as_they_say() -> None:
    trust, inferred, truth, numbers, _ = digits(wrong=0, seed=0)
    right = inferred == truth
    own = trust.p_u.gather(1, inferred[:, None]).squeeze(1)
    assert calibration_error(own, right) < 0.05
    assert numbers["all"]["low"] <= right.double().mean() <= numbers["all"]["high"]
    accepted = own >= 0.95
    assert accepted.double().mean() > 0.3
    low, high = numbers["accepted"]["low"], numbers["accepted"]["high"]
    assert low <= right[accepted].double().mean() <= high
    assert right[accepted].double().mean() > right[~accepted].double().mean() + 0.05
    assert numbers["left_out"] == 60
    assert len(trust.suspects) <= 6


def test_wrong_labels_of_digits_are_found() -> None:
    trust, *_, wrong = digits(wrong=6, seed=1)
    found = set(trust.suspects)
    assert len(found & wrong) >= 4
    assert len(found & wrong) >= 0.5 * len(found)
