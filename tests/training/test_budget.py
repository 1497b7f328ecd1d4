"""Forecasts and budgets: arithmetic with a clock of our own, and the command itself."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command import saas
from saas_ssl.training.budget import Deadline, fit, fitted
from saas_ssl.training.forecast import Forecast, Speed, in_words, measure, planned_passes
from saas_ssl.training.presets import PRESETS, Settings
from saas_ssl.training.problem import Problem, prepare
from saas_ssl.training.ranks import ALONE
from small_problems import FEATURES, features, with_

SETTINGS = FEATURES.changed(inner_epochs=4, outer_iterations=5, classifier_epochs=10)


class Timer:
    """Time that passes only when it is told to."""

    def __init__(self, budget: float) -> None:
        self.left = budget

    def __call__(self) -> float:
        return self.left


@given(
    st.floats(1.0, 1e6),
    st.floats(1e-3, 1e3),
    st.floats(1e-3, 1e3),
    st.sampled_from([1, 2]),
    st.integers(1, 60),
    st.integers(2, 40),
    st.integers(1, 100),
)
def test_fitted_settings_take_the_time_there_is(
    seconds: float, inner: float, epoch: float, classifiers: int, T: int, M: int, E: int
) -> None:
    forecast = Forecast(inner, epoch, 1.0)
    unfitted = FEATURES.changed(inner_epochs=T, outer_iterations=M, classifier_epochs=E)
    settings = unfitted.changed(**fitted(unfitted, forecast, seconds, (), classifiers))
    spent = settings.outer_iterations * settings.inner_epochs * inner
    spent += classifiers * settings.classifier_epochs * epoch + 1.0
    least = 2 * inner + classifiers * epoch + 1.0  # rounding may cost as much as one of each
    assert spent <= seconds + least
    one_more = settings.inner_epochs * inner + classifiers * epoch
    assert spent + one_more + least >= seconds
    effective = [s.posterior_lr * s.inner_epochs for s in (settings, unfitted)]
    assert effective[0] == pytest.approx(effective[1])


def test_what_is_given_stays() -> None:
    forecast = Forecast(1.0, 1.0, 1.0)
    names = ("inner_epochs", "outer_iterations", "classifier_epochs", "posterior_lr")
    changed = SETTINGS.changed(**fitted(SETTINGS, forecast, 1000.0, names, 2))
    assert changed == SETTINGS
    for name in names:
        changed = SETTINGS.changed(**fitted(SETTINGS, forecast, 1000.0, (name,), 2))
        assert getattr(changed, name) == getattr(SETTINGS, name)
        assert changed != SETTINGS


def test_the_initial_posterior_takes_its_time_too() -> None:
    forecast, later = Forecast(1.0, 1.0, 0.0), Forecast(1.0, 1.0, 0.0, start=7.0)
    assert (later.whole(SETTINGS) or 0) - (forecast.whole(SETTINGS) or 0) == 7.0
    assert fitted(SETTINGS, later, 107.0, (), 2) == fitted(SETTINGS, forecast, 100.0, (), 2)
    assert later.times(2.0) == Forecast(2.0, 2.0, 0.0, 14.0)


def test_little_time_means_fewer_loops_before_shorter_ones() -> None:
    forecast = Forecast(1.0, 1.0, 0.0)
    whole = forecast.whole(SETTINGS)
    assert whole == 4 * 5 + 2 * 10
    seen = [fitted(SETTINGS, forecast, share * whole, (), 2) for share in (1.0, 0.7, 0.3, 0.1)]
    loops = [(found["inner_epochs"], found["outer_iterations"]) for found in seen]
    assert loops == [(4, 5), (4, 3), (3, 2), (1, 2)]
    much = fitted(SETTINGS, forecast, 9 * whole, (), 2)
    assert (much["inner_epochs"], much["outer_iterations"]) == (12, 15)


def problem_for(settings: Settings) -> Problem:
    return prepare(features(), settings, seed=0)


def test_a_budget_that_is_too_short_says_how_long_it_takes() -> None:
    with pytest.raises(ValueError, match=r"the budget is too short: .* take about 1 s on top"):
        fit(problem_for, SETTINGS, (), False, lambda: 0.1, 0)


def test_the_width_follows_the_budget_where_that_is_allowed() -> None:
    def width(seconds: float, may_change: bool, given_names: tuple[str, ...] = ()) -> int | None:
        problem, _, _ = fit(
            problem_for, with_(width=8), given_names, may_change, lambda: seconds, 0
        )
        return problem.settings.width

    assert width(600.0, may_change=True) == 64
    assert width(600.0, may_change=False) == 8
    assert width(600.0, True, ("width",)) == 8
    assert width(3.0, may_change=True) in (8, 16, 32, 64)
    with pytest.raises(ValueError, match="too short"):
        width(0.5, may_change=True)


def test_a_schedule_without_an_end_gets_one() -> None:
    halving = with_(classifier_schedule="halving")
    problem, forecast, _ = fit(problem_for, halving, (), False, lambda: 30.0, 0)
    assert problem.settings.classifier_schedule == "triangular"
    assert forecast.whole(halving) is None


def test_measuring_changes_nothing() -> None:
    problem = problem_for(SETTINGS)
    before = problem.data.fingerprint()
    speed = measure(problem)
    assert min(speed.one, speed.two, speed.forward) > 0
    assert problem.data.fingerprint() == before


def test_the_forecast_counts_every_part() -> None:
    problem = problem_for(SETTINGS)
    forecast = Forecast.of(problem, Speed(one=1.0, two=10.0, forward=100.0), test_rows=7)
    passes = problem.passes()
    assert (forecast.inner_epoch, forecast.epoch) == (passes, 10 * passes)
    rows, labelled = len(problem.training.unlabelled_rows), len(problem.probe.labelled_rows)
    assert forecast.finish == pytest.approx(100 * (5 * rows + 2 * (7 + labelled)) + 1, rel=1e-6)
    plan = planned_passes(problem)
    assert plan["one"] == problem.passes(4 * 5)
    assert plan["two"] == problem.passes(10)


def test_a_run_of_days_says_so() -> None:
    assert (
        in_words(300.0, 1, None) == "This will take about 5 min with one process on this machine."
    )
    long = in_words(3.2 * 86_400, 2, None)
    assert long.startswith("This will take about 3.2 days with 2 processes on this machine.")
    assert "That is days: --budget 8h" in long
    assert "cannot be said" in in_words(None, 1, None)
    assert in_words(300.0, 1, 120.0).startswith("Fitted to 2 min in all")
    paper = PRESETS["paper-cifar10"].changed(classifier_schedule="triangular")
    seconds = Forecast(86.0, 86.0, 10.0).whole(paper)
    assert seconds is not None
    assert "That is days" in in_words(seconds, 1, None)


def simulate(budget: float, true_speed: Callable[[], float], predicted: Forecast) -> float:
    """How much of a budget is left at the end of a run on a machine that is not as predicted."""
    timer = Timer(budget)
    unfitted = SETTINGS.changed(classifier_schedule="triangular", outer_iterations=6)
    settings = unfitted.changed(**fitted(unfitted, predicted, 0.97 * budget, (), 2))
    deadline = Deadline(timer, predicted, unfitted, (), ALONE)
    baseline = settings.classifier_epochs * predicted.epoch * true_speed()
    timer.left -= baseline
    settings = settings.changed(**deadline.refit(settings, baseline))
    m = 0
    while m == 0 or deadline.goes_on(settings):
        deadline.begin_outer()
        timer.left -= settings.inner_epochs * predicted.inner_epoch * true_speed()
        deadline.end_outer(settings)
        m += 1
    rate, scores = deadline.rate(settings, 0), list[float]()
    while (eta := rate(scores)) > 0:
        assert eta <= settings.classifier_lr
        timer.left -= predicted.epoch * true_speed()
        scores.append(0.0)
    assert scores
    return timer.left - predicted.finish * true_speed()


@pytest.mark.parametrize("speed", [0.5, 0.8, 1.0, 1.3, 2.0])
@pytest.mark.parametrize("budget", [60.0, 600.0, 6000.0])
def test_a_run_ends_within_a_tenth_of_its_budget(budget: float, speed: float) -> None:
    """However wrong the forecast was, as long as an epoch is short enough to steer by."""
    predicted = Forecast(budget / 150, budget / 150, budget / 60)
    assert abs(simulate(budget, lambda: speed, predicted)) <= 0.1 * budget


def test_a_machine_that_becomes_slower_is_noticed() -> None:
    speeds = iter([1.0, 1.0, 1.0, *[1.5] * 10_000])
    predicted = Forecast(4.0, 4.0, 10.0)
    assert abs(simulate(600.0, lambda: next(speeds), predicted)) <= 60.0


def test_phase_two_that_goes_on_does_not_warm_up_again() -> None:
    timer = Timer(100.0)
    deadline = Deadline(timer, Forecast(1.0, 1.0, 0.0), SETTINGS, (), ALONE)
    settings = SETTINGS.changed(classifier_schedule="triangular", classifier_lr=1.0)
    fresh, continued = deadline.rate(settings, 0), deadline.rate(settings, 7)
    assert fresh([]) == pytest.approx(0.02)
    assert continued([0.0] * 7) == 1.0


def test_the_command_keeps_to_a_budget_and_tells_so(tmp_path: Path) -> None:
    # Few rows, so that a short budget is long enough even where all is slow.
    command = ["label", "digits:train", "--keep-labels", "50", "--unlabelled", "300"]
    command += ["--image-size", "8", "--inner-epochs", "2", "--set", "width=4"]
    done = saas(*command, "--budget", "20s", "--out", "run", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    text = done.stdout
    assert "Fitted to 20 s in all, by the speed of one process here." in text
    assert record["budget"] == 20.0
    assert record["config"]["inner_epochs"] == 2
    assert record["results"]["outer_iterations"] >= 1
    lines = [line for line in text.splitlines() if line.startswith("outer")]
    assert len(lines) == record["results"]["outer_iterations"]
