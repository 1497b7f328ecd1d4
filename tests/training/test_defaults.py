"""The rule behind `--preset automatic`."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saas_ssl import PartiallyLabelled, Settings, automatic, generator_at, prepare, read_digits
from saas_ssl.algorithm.partially_labelled import SET_ASIDE
from saas_ssl.data.splits import keep_labels

COLOUR, GREY, FEATURES = (3, 32, 32), (1, 28, 28), (8,)


def labelled_passes(settings: Settings, N_l: int, N_u: int) -> float:
    steps = settings.inner_epochs * math.ceil(N_u / settings.batch_size)
    assert settings.labelled_batch_size is not None
    return steps * settings.labelled_batch_size / N_l


@given(N_l=st.integers(2, 100_000), N_u=st.integers(1, 1_000_000))
def test_the_inner_loop_is_long_enough_and_no_longer(N_l: int, N_u: int) -> None:
    settings = automatic(COLOUR, N_l, N_u)
    T = settings.inner_epochs
    assert T >= 2
    assert labelled_passes(settings, N_l, N_u) >= 75
    steps = T * math.ceil(N_u / settings.batch_size)
    assert steps >= 100
    if T > 2:  # one epoch less would be too short
        shorter = settings.changed(inner_epochs=T - 1)
        assert labelled_passes(shorter, N_l, N_u) < 75 or steps * (T - 1) / T < 100
    assert settings.posterior_lr * T / settings.batch_size == pytest.approx(1.0)
    assert 2 <= settings.outer_iterations <= 6
    assert settings.batch_size <= N_u
    assert (settings.labelled_batch_size or 0) <= N_l


@pytest.mark.parametrize("share", [1 / 50, 1 / 5, 1 / 2])
def test_cost_is_linear_at_equal_shares_of_labels(share: float) -> None:
    costs = [automatic(COLOUR, int(n * share), n).inner_epochs for n in (5_000, 10_000, 20_000)]
    assert len(set(costs)) == 1


def test_what_is_given_stays_and_the_rest_follows() -> None:
    settings = automatic(COLOUR, 2_000, 8_000, batch_size=100, inner_epochs=10, momentum=0.5)
    assert (settings.batch_size, settings.inner_epochs, settings.momentum) == (100, 10, 0.5)
    assert settings.posterior_lr == 10.0
    assert automatic(COLOUR, 2_000, 8_000, labelled_batch_size=50).inner_epochs == 19


def test_shapes_choose_networks_and_augmentation() -> None:
    chosen = [automatic(shape, 100, 1_000) for shape in (COLOUR, GREY, FEATURES)]
    assert [s.network for s in chosen] == ["small_conv", "small_conv", "mlp"]
    assert [s.augmentation for s in chosen] == ["cifar10", "digits", "features"]
    assert [s.initial_posterior for s in chosen] == ["uniform", "uniform", "supervised"]
    assert [s.classifier_augmentation for s in chosen] == ["same", "strong", "same"]


def test_few_features_take_longer_loops() -> None:
    many, few = automatic((8,), 10, 990), automatic((7,), 10, 990)
    assert (many.augmentation, few.augmentation) == ("features", "few-features")
    assert (many.inner_epochs * 20, few.inner_epochs * 20) == (100, 300)
    assert automatic((1, 8, 8), 10, 990).inner_epochs * 20 == 100  # a grey channel is no feature


def test_it_needs_labelled_rows_which_stand_in_for_the_others() -> None:
    with pytest.raises(ValueError, match="some rows are labelled"):
        automatic(GREY, 0, 5)
    assert automatic(GREY, 5, 0) == automatic(GREY, 5, 5)


@pytest.mark.parametrize(
    ("labels", "unlabelled"), [(20, 5), (50, 30), (200, 50), (210, 60), (1_200, 40)]
)
def test_automatic_settings_can_be_prepared(labels: int, unlabelled: int) -> None:
    digits = read_digits(image_size=8)
    data: PartiallyLabelled = keep_labels(digits, labels, generator_at(0), unlabelled)
    assert int((data.y == SET_ASIDE).sum()) == 1797 - labels - unlabelled
    problem = prepare(data, automatic((1, 8, 8), labels, unlabelled), seed=0)
    assert problem.effective_step == pytest.approx(1.0)
