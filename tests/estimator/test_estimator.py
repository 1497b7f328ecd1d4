"""SaaSClassifier by the conventions of scikit-learn, and what its own estimators are tested for."""

import inspect
import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_wine, make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Generator, nn

from notebook import Array, Quick, clusters, pictures
from saas_ssl import SaaSClassifier, Settings, named_preset
from saas_ssl.algorithm.randomness import seed_at
from saas_ssl.algorithm.simplex import project
from saas_ssl.training.outputs import predict
from saas_ssl.training.pipeline import infer_posterior, initial_posterior, train_supervised
from saas_ssl.training.problem import prepare
from toy import last

# --- what is learned -------------------------------------------------------------------------


def test_what_fit_learns() -> None:
    X, y, truth = clusters()
    model = Quick().fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2]
    assert np.mean(model.transduction_ == truth) > 0.95
    assert np.mean(model.predict(X) == truth) > 0.95
    np.testing.assert_array_equal(model.transduction_[:15], truth[:15])  # given labels stay
    assert model.label_distributions_.shape == (150, 3)
    np.testing.assert_array_equal(model.label_distributions_[:15], np.eye(3)[truth[:15]])
    np.testing.assert_allclose(model.label_distributions_.sum(axis=1), 1.0, atol=1e-5)
    assert model.label_distributions_[15:].min() >= 0.5 / 3 - 1e-6
    np.testing.assert_array_equal(
        model.classes_[model.label_distributions_.argmax(axis=1)], model.transduction_
    )
    assert model.n_iter_ == 2
    assert model.n_features_in_ == 10
    assert not hasattr(model, "feature_names_in_")
    assert isinstance(model.network_, nn.Module)
    assert model.settings_.network == "mlp"
    f = model.predict_proba(X)
    assert f.shape == (150, 3)
    np.testing.assert_allclose(f.sum(axis=1), 1.0, atol=1e-5)
    one = [line for line in model.history_ if line["phase"] == "one"]
    two = [line for line in model.history_ if line["phase"] == "two"]
    assert [line["outer"] for line in one] == [0, 1]
    assert [line["epoch"] for line in two] == list(range(8))
    assert {"cumulative_loss", "changed", "inner_error", "image_passes", "seconds"} <= one[0].keys()
    passes = [line["image_passes"] for line in model.history_]
    assert passes == sorted(passes)
    # 135 unlabelled rows in 5 batches, 15 labelled ones with each.
    assert passes[-1] == (2 * 8 + 8) * (135 + 5 * 15)


def test_it_beats_the_same_network_on_the_labels_alone() -> None:
    X, truth = load_digits(return_X_y=True)
    X, X_test, truth, truth_test = train_test_split(X, truth, test_size=450, random_state=0)
    y = np.where(np.arange(len(truth)) < 60, truth, -1)
    model = SaaSClassifier(random_state=0).fit(X, y)
    supervised = SaaSClassifier(random_state=0, outer_iterations=0).fit(X, y)
    assert model.score(X_test, truth_test) > supervised.score(X_test, truth_test) + 0.02
    assert np.mean(model.transduction_ == truth) > np.mean(supervised.transduction_ == truth) + 0.02


def test_unlabelled_rows_make_a_difference() -> None:
    X, y, _ = clusters()
    moved = X.copy()
    moved[100:] += 1.0
    models = [Quick().fit(rows, y) for rows in (X, moved)]
    weights = [next(model.network_.parameters()) for model in models]
    assert not torch.equal(*weights)


def test_the_same_seed_gives_the_same_bits_and_leaves_the_world_alone() -> None:
    X, y, _ = clusters()
    before = torch.get_rng_state(), str(np.random.get_state()), torch.get_num_threads()
    torch.set_num_threads(2)
    once, again, other = (Quick(random_state=seed).fit(X, y) for seed in (0, 0, 1))
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before[2])
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == str(np.random.get_state())
    np.testing.assert_array_equal(once.predict_proba(X), again.predict_proba(X))
    np.testing.assert_array_equal(once.label_distributions_, again.label_distributions_)
    assert not np.array_equal(once.predict_proba(X), other.predict_proba(X))
    drawn = [Quick(random_state=np.random.RandomState(3)).fit(X, y) for _ in range(2)]
    np.testing.assert_array_equal(drawn[0].predict_proba(X), drawn[1].predict_proba(X))


def test_fit_forgets_the_past() -> None:
    X, y, _ = clusters()
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(10)])
    model = Quick().fit(frame, y)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    images, y_images, _ = pictures()
    model.fit(images, y_images)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 120
    np.testing.assert_array_equal(
        model.predict_proba(images), Quick().fit(images, y_images).predict_proba(images)
    )


def test_a_fit_that_failed_is_none() -> None:
    X, y, _ = clusters()
    model = Quick()
    with pytest.raises(ValueError, match="one class only"):
        model.fit(X, np.where(y == -1, -1, 1))
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(NotFittedError):
        model.save("nowhere")


def test_rows_may_come_in_any_order() -> None:
    X, y, truth = clusters()
    order = np.random.default_rng(1).permutation(len(X))
    model = Quick().fit(X[order], y[order])
    assert np.mean(model.transduction_ == truth[order]) > 0.95
    np.testing.assert_allclose(
        model.predict_proba(X)[order], model.predict_proba(X[order]), atol=1e-6
    )


# --- few or no unlabelled rows ---------------------------------------------------------------


def test_without_unlabelled_rows_it_is_the_network_on_the_labels() -> None:
    X, _, truth = clusters()
    model = Quick().fit(X, truth)
    assert model.n_iter_ == 0
    assert {line["phase"] for line in model.history_} == {"two"}
    np.testing.assert_array_equal(model.transduction_, truth)
    np.testing.assert_array_equal(model.label_distributions_, np.eye(3)[truth])
    assert model.score(X, truth) > 0.95


def test_zero_iterations_are_the_supervised_baseline() -> None:
    X, y, _ = clusters()
    model = Quick(outer_iterations=0).fit(X, y)
    assert model.n_iter_ == 0
    data = model_data(X, y)
    problem = prepare(data, model.settings_, seed=0)
    baseline = last(train_supervised(problem))
    f = predict(baseline.w, problem.preprocessing, data.x)
    np.testing.assert_array_equal(model.predict_proba(X), f.numpy())
    np.testing.assert_array_equal(model.label_distributions_[15:], f[15:].numpy())
    np.testing.assert_array_equal(model.transduction_[15:], model.predict(X[15:]))


def model_data(X: Array, y: Array) -> Any:
    from saas_ssl import PartiallyLabelled

    ids = [str(row) for row in range(len(X))]
    names = [str(k) for k in sorted(set(y.tolist()) - {-1})]
    return PartiallyLabelled(torch.from_numpy(X), torch.from_numpy(y), names, ids)


@pytest.mark.parametrize("unlabelled", [1, 2, 3])
def test_a_few_unlabelled_rows_are_enough(unlabelled: int) -> None:
    X, _, truth = clusters()
    y = np.where(np.arange(len(X)) < unlabelled, -1, truth)
    model = Quick(batch_size=None).fit(X, y)
    np.testing.assert_array_equal(model.transduction_, truth)
    assert model.n_iter_ == (0 if unlabelled == 1 else 2)
    few = np.r_[:unlabelled, [np.flatnonzero(y == k)[-1] for k in range(3)]]
    labels = Quick(batch_size=None).fit(X[few], y[few]).transduction_
    assert np.isin(labels, range(3)).all()


def test_one_label_of_each_class_is_enough() -> None:
    X, _, truth = clusters()
    first = [np.flatnonzero(truth == k)[0] for k in range(3)]
    y = np.full(len(X), -1)
    y[first] = truth[first]
    assert np.mean(SaaSClassifier(random_state=0).fit(X, y).transduction_ == truth) > 0.9


# --- kinds of rows ---------------------------------------------------------------------------


def test_rows_of_every_kind_are_the_same_rows() -> None:
    X, y, _ = clusters()
    X = np.round(X * 4)  # whole numbers, so that every type can hold them
    expected = Quick().fit(X, y).predict(X)
    names = [f"x{i}" for i in range(X.shape[1])]
    kinds = [
        X.astype(np.float32),
        X.astype(np.float16),
        X.astype(np.int16),
        np.asfortranarray(X),
        X.tolist(),
        torch.from_numpy(X).requires_grad_(),
        torch.from_numpy(X).to(torch.bfloat16),
        pd.DataFrame(X, columns=names),
        pl.DataFrame(X, schema=names),
    ]
    for rows in kinds:
        model = Quick().fit(rows, y)
        np.testing.assert_array_equal(model.predict(rows), expected)
        if hasattr(rows, "columns"):
            assert model.feature_names_in_.tolist() == names
            with pytest.raises(ValueError, match="feature names"):
                model.predict(
                    rows.rename(columns={"x0": "z"})
                    if isinstance(rows, pd.DataFrame)
                    else rows.rename({"x0": "z"})
                )


def test_features_far_from_zero_keep_their_digits() -> None:
    X, y, truth = clusters()
    model = Quick().fit(X + 1e9, y)
    assert np.mean(model.predict(X + 1e9) == truth) > 0.95


@pytest.mark.parametrize("channels", [None, 1, 3, 4])
def test_layouts_of_images_mean_the_same(channels: int | None) -> None:
    X, y, truth = pictures(channels=channels)
    model = Quick(width=4).fit(X, y)
    assert model.settings_.network == "small_conv"
    assert model.settings_.augmentation == ("cifar10" if channels == 3 else "digits")
    assert model.n_features_in_ == 120 * (channels or 1)
    assert np.mean(model.transduction_ == truth) > 0.9
    expected = model.predict_proba(X)
    others = [X[:, None], X[..., None]] if channels is None else [np.moveaxis(X, 3, 1)]
    for images in (*others, torch.from_numpy(X)):
        again = Quick(width=4).fit(images, y)
        np.testing.assert_array_equal(again.predict_proba(images), expected)
        np.testing.assert_array_equal(again.predict_proba(X), expected)


def test_numbers_of_pixels_mean_what_they_meant_in_fit() -> None:
    X, y, _ = pictures()
    sixteen = X // 16  # as the digits of scikit-learn have them
    models = [
        Quick(width=4).fit(images, y)
        for images in (sixteen / 15.0, sixteen * 1.0, sixteen * 1000.0 - 700, sixteen.astype(int))
    ]
    assert models[2].pixel_range_ == (sixteen.min() * 1000.0 - 700, sixteen.max() * 1000.0 - 700)
    for model, images in zip(
        models[1:], (sixteen * 1.0, sixteen * 1000.0 - 700, sixteen.astype(np.uint16)), strict=True
    ):
        np.testing.assert_allclose(model.predict_proba(images)[:5].sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_array_equal(
        models[1].predict_proba(sixteen * 1.0), models[3].predict_proba(sixteen)
    )
    np.testing.assert_allclose(
        models[1].predict_proba(sixteen * 1.0),
        models[2].predict_proba(sixteen * 1000.0 - 700),
        atol=1e-4,
    )


def test_numbers_beyond_those_of_fit_are_black_and_white() -> None:
    X, y, _ = pictures()
    images = np.clip(X, 40, 200) * 1.0
    model = Quick(width=4).fit(images, y)
    assert model.pixel_range_ == (40.0, 200.0)
    np.testing.assert_array_equal(model.predict_proba(X * 1.0), model.predict_proba(images))


def test_a_read_only_memory_map_is_not_copied(tmp_path: Any) -> None:
    X, y, _ = pictures()
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    model = Quick(width=4)
    assert model._images(mapped, reset=True).data_ptr() == mapped.ctypes.data
    assert model.fit(mapped, y).predict(mapped).shape == (120,)


# --- kinds of labels -------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["", " ", None, np.nan, -1, pd.NA], ids=repr)
def test_text_labels(missing: Any) -> None:
    X, y, truth = clusters()
    names = np.array(["third", "a long name", "2"], dtype=object)
    texts = names[truth]
    labels = [text if known else missing for text, known in zip(texts, y != -1, strict=True)]
    kinds: list[Any] = [labels, np.array(labels, dtype=object)]
    if missing is None:
        kinds += [pd.Series(labels), pd.Series(labels, dtype="category"), pl.Series(labels)]
        kinds += [pd.Series(labels, dtype="string")]
    if isinstance(missing, str):
        kinds += [np.array(labels), np.array(labels).astype("S")]
    for given in kinds:
        model = Quick().fit(X, given)
        assert model.classes_.tolist() == sorted(names)
        assert np.mean(model.transduction_ == texts) > 0.95
        assert model.predict(X).dtype.kind == "U"
        assert 0.9 < model.score(X, given) <= 1.0


@pytest.mark.parametrize(
    ("of_classes", "dtype"),
    [([10, -7, 3], np.int64), ([0.0, 1.0, 2.0], np.float32), ([5, 6, 250], np.uint8)],
)
def test_numbers_as_labels(of_classes: list[float], dtype: Any) -> None:
    X, y, truth = clusters()
    labels = np.array(of_classes)[truth]
    if dtype is np.uint8:  # has no -1
        given: Any = pd.Series(labels).where(y != -1).astype("UInt8")
    elif dtype is np.float32:
        given = np.where(y == -1, np.nan, labels).astype(dtype)
    else:
        given = torch.from_numpy(np.where(y == -1, -1, labels).astype(dtype))
    model = Quick().fit(X, given)
    assert model.classes_.tolist() == sorted(of_classes)
    assert np.mean(model.transduction_ == labels) > 0.95


def test_bools_as_labels() -> None:
    X, y, truth = clusters(K=2, labelled=10)
    given = np.array([None if k == -1 else bool(k) for k in y], dtype=object)
    model = Quick().fit(X, given)
    assert model.classes_.dtype == bool
    assert np.mean(model.transduction_ == truth.astype(bool)) > 0.95
    assert Quick().fit(X, truth.astype(bool)).predict(X).dtype == bool


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (lambda y: None, "requires y to be passed"),
        (lambda y: np.full(150, -1), "no known label"),
        (lambda y: np.where(y == -1, -1, 1), "one class only, .*1.*-1 means unlabelled"),
        (lambda y: y[:-1], "inconsistent numbers of samples"),
        (lambda y: np.where(y == 2, 0.5, y), "Unknown label type"),
        (lambda y: np.where(y == 2, np.inf, y), "infinite labels"),
        (lambda y: np.array(["a", "b", np.nan])[y % 3], "the text 'nan', which numpy makes"),
        (lambda y: np.array(["a", "b", -1])[y % 3], "the text '-1', which numpy makes"),
        (lambda y: ["a" if k else 5 for k in y], "both texts and other labels"),
        (lambda y: np.eye(3)[y], "y should be a 1d array"),
    ],
)
def test_wrong_labels_are_one_sentence(labels: Any, sentence: str) -> None:
    X, y, _ = clusters()
    with pytest.raises(ValueError, match=sentence) as error:
        Quick().fit(X, labels(y))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("rows", "kind", "sentence"),
    [
        (lambda X: csr_array(X), TypeError, "[Ss]parse"),
        (lambda X: X[:, 0], ValueError, "Expected 2D array"),
        (lambda X: X[:, :0], ValueError, r"0 feature\(s\)"),
        (lambda X: X.reshape(len(X), 2, 5, 1, 1), ValueError, "Found array with dim 5"),
        (lambda X: np.where(X > 5, np.nan, X), ValueError, "contains NaN"),
        (lambda X: X.reshape(len(X), 2, 5), ValueError, "images of at least 8x8"),
        (lambda X: np.where(X > 5, np.inf, X).reshape(len(X), 2, 5), ValueError, "infinity"),
        (lambda X: X.astype(str).reshape(len(X), 2, 5), ValueError, "images must be numbers"),
    ],
)
def test_wrong_rows_are_told(rows: Any, kind: type[Exception], sentence: str) -> None:
    X, y, _ = clusters()
    with pytest.raises(kind, match=sentence):
        Quick().fit(rows(X), y)


def test_rows_of_another_shape_are_refused() -> None:
    X, y, _ = clusters()
    images, y_images, _ = pictures()
    features, pixels = Quick().fit(X, y), Quick(width=4).fit(images, y_images)
    with pytest.raises(ValueError, match="X has 9 features, but SaaSClassifier is expecting 10"):
        features.predict(X[:, :9])
    with pytest.raises(ValueError, match=r"rows of shape \(10,\) are needed, but X has \(1, 10"):
        features.predict(images)
    with pytest.raises(ValueError, match=r"\(1, 10, 12\) are needed, but X has \(1, 10, 11\)"):
        pixels.predict(images[:, :, :11])
    with pytest.raises(ValueError, match=r"images of shape \(1, 10, 12\) are needed"):
        pixels.predict(X)


# --- parameters ------------------------------------------------------------------------------


def test_every_setting_is_a_parameter_with_a_word_about_it() -> None:
    own = ["random_state", "device", "n_jobs", "verbose", "budget"]
    parameters = inspect.signature(SaaSClassifier).parameters
    assert list(parameters) == [*Settings.model_fields, *own]
    text = inspect.getdoc(SaaSClassifier) or ""
    for name in parameters:
        assert f"\n{name} : " in text
    for name in ("classes_", "transduction_", "label_distributions_", "n_iter_", "history_"):
        assert f"\n{name} : " in text


def test_a_preset_is_a_set_of_parameters() -> None:
    X, y, truth = pictures()
    y[:30] = truth[:30]
    preset = named_preset("digits").changed(width=4, outer_iterations=1, classifier_epochs=2)
    model = SaaSClassifier(**preset.model_dump()).fit(X, y)
    resolved = {"classifier_augmentation": "strong-digits", "min_probability": 0.25}
    assert model.settings_ == preset.changed(**resolved, validation_share=0.1)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"network": "vgg"}, "unknown network 'vgg'"),
        ({"network": "small_conv"}, "takes images"),
        ({"network": lambda *_: nn.Linear(10, 7)}, r"gives \(.*7\) outputs .* the 3 classes"),
        ({"augmentation": "digits"}, "for features choose features or none"),
        ({"min_probability": 0.4}, "infeasible for 3 classes"),
        ({"inner_epochs": 0}, "inner_epochs: input should be greater than or equal to 1, not 0"),
        ({"inner_epochs": "many"}, "inner_epochs: .*valid integer"),
        ({"update": "never"}, "update: "),
        ({"batch_size": 1000}, "batch of 1000 unlabelled rows is impossible"),
        ({"device": "abacus"}, "unknown device 'abacus'"),
        ({"n_jobs": 0}, "n_jobs must be a number of processes"),
        ({"n_jobs": 1.5}, "n_jobs must be a number of processes"),
        ({"budget": "soon"}, "'soon' is not a length of time"),
        ({"budget": -1}, "budget must be a time above 0"),
        ({"budget": 1e-3}, "the budget is too short"),
        ({"budget": 60, "classifier_schedule": "halving"}, "halving"),
    ],
)
def test_wrong_parameters_are_one_sentence(parameters: dict[str, Any], sentence: str) -> None:
    X, y, _ = clusters()
    with pytest.raises(ValueError, match=sentence) as error:
        Quick(**parameters).fit(X, y)
    assert "\n" not in str(error.value)


def test_a_network_of_ones_own() -> None:
    def linear(in_shape: tuple[int, ...], n_classes: int, _generator: Generator) -> nn.Module:
        return nn.Linear(in_shape[0], n_classes)

    X, y, truth = clusters()
    model = Quick(network=linear).fit(X, y)
    assert isinstance(model.network_, nn.Linear)
    assert model.score(X, truth) > 0.95
    np.testing.assert_array_equal(model.predict_proba(X), clone(model).fit(X, y).predict_proba(X))


def test_verbose_tells_of_every_outer_iteration(capsys: pytest.CaptureFixture[str]) -> None:
    X, y, _ = clusters()
    Quick().fit(X, y)
    assert capsys.readouterr().out == ""
    Quick(verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("[SaaSClassifier] outer iteration 1: cumulative loss ")
    assert lines[2].startswith("[SaaSClassifier] classifier: loss ")


def test_halving_needs_validation_rows_and_nothing_else_does() -> None:
    X, y, _ = clusters(n=200, labelled=120)
    model = Quick().fit(X, y)
    assert model.settings_.validation_share == 0.0
    halving: dict[str, Any] = {"classifier_schedule": "halving", "classifier_patience": 1}
    model = Quick(classifier_final_lr=0.04, **halving).fit(X, y)
    assert model.settings_.validation_share == 0.1
    np.testing.assert_array_equal(model.transduction_[:120], y[:120])


def test_jobs_are_trajectories_whose_mean_moves_the_posterior() -> None:
    X, y, truth = clusters()
    hidden = 6

    def own(in_shape: tuple[int, ...], n_classes: int, _generator: Generator) -> nn.Module:
        return nn.Sequential(
            nn.Linear(in_shape[0], hidden), nn.Tanh(), nn.Linear(hidden, n_classes)
        )

    # So small a step that the posterior stays inside the simplex, where every draw can be seen.
    model = Quick(network=own, n_jobs=3, outer_iterations=2, posterior_lr=0.3).fit(X, y)
    assert np.mean(model.transduction_ == truth) > 0.8
    data = model_data(X, y)
    P_u, changes = None, list[float]()
    for m in range(2):
        outers = []
        for seed in (0, seed_at(0, "rank", 1), seed_at(0, "rank", 2)):
            problem = prepare(data, model.settings_, 0, own)
            P_u = initial_posterior(problem) if P_u is None else P_u
            problem = prepare(data, model.settings_, seed, own)
            outers.append(next(infer_posterior(problem, P_u, changes, M=m + 1)))
        assert P_u is not None
        mean = torch.stack([outer.dP_u for outer in outers]).mean(dim=0)
        P_u = project(P_u - problem.settings.posterior_lr * mean, problem.alpha)
        changes = [model.history_[0]["changed"]]
    assert P_u is not None
    assert np.median(model.label_distributions_[15:].max(axis=1)) < 0.6
    np.testing.assert_allclose(model.label_distributions_[15:], P_u.numpy(), atol=1e-5)
    assert model.history_[1]["image_passes"] == 3 * 2 * 8 * (135 + 5 * 15)


def test_an_inner_loop_that_is_too_short_is_told() -> None:
    X, y, _ = clusters()
    with pytest.warns(ConvergenceWarning, match=r"inner loop seems too short.* inner_epochs=2$"):
        model = Quick(inner_epochs=1, weight_lr=1e-6).fit(X, y)
    assert model.history_[1]["inner_error"] > 0.1
    assert Quick().fit(X, y).history_[1]["inner_error"] == 0.0


def test_a_budget_decides_the_lengths_that_are_not_given() -> None:
    X, y, truth = clusters()
    model = SaaSClassifier(random_state=0, budget=5.0).fit(X, y)
    free = SaaSClassifier(random_state=0).fit(X, y)
    assert model.settings_.inner_epochs != free.settings_.inner_epochs or (
        model.settings_.classifier_epochs != free.settings_.classifier_epochs
    )
    assert np.mean(model.transduction_ == truth) > 0.9
    fixed = Quick(budget="3s").fit(X, y)
    assert (fixed.n_iter_, fixed.settings_.inner_epochs) == (2, 8)


# --- in company ------------------------------------------------------------------------------


def test_it_can_be_cloned_shown_and_pickled() -> None:
    X, y, _ = clusters()
    model = Quick().fit(X, y)
    twin = clone(model)
    assert not hasattr(twin, "classes_")
    assert twin.get_params() == model.get_params()
    assert repr(twin.set_params(width=None)).startswith("SaaSClassifier(")
    assert "SaaSClassifier" in model._repr_html_()
    thawed = pickle.loads(pickle.dumps(model))  # noqa: S301
    np.testing.assert_array_equal(thawed.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(thawed.transduction_, model.transduction_)


def test_in_a_pipeline_that_hands_on_frames() -> None:
    X, y, truth = clusters()
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(10)])
    pipeline = make_pipeline(StandardScaler(), Quick()).set_output(transform="pandas")
    pipeline.fit(frame, y)
    assert pipeline[-1].feature_names_in_.tolist() == list(frame.columns)
    assert pipeline.score(frame, truth) > 0.95
    assert pipeline.predict_proba(frame).shape == (150, 3)


def test_score_is_about_known_labels_alone() -> None:
    X, y, truth = clusters()
    model = Quick().fit(X, y)
    assert model.score(X, y) == np.mean(model.predict(X[:15]) == truth[:15])
    weights = np.arange(150.0)
    right = model.predict(X) == truth
    assert model.score(X, truth, weights) == pytest.approx(np.average(right, weights=weights))
    with pytest.raises(ValueError, match="no known label"):
        model.score(X, np.full(150, -1))


def test_searches_and_cross_validation_take_partial_labels() -> None:
    X, y, truth = clusters(labelled=60)
    grid = {"outer_iterations": [0, 1], "min_probability": [0.05, 0.1]}
    search = GridSearchCV(Quick(), grid, cv=2).fit(X, y)
    assert search.best_score_ > 0.9
    assert search.score(X, truth) > 0.9
    drawn = {"inner_epochs": np.arange(6, 8), "weight_lr": np.array([0.05, 0.1])}
    RandomizedSearchCV(Quick(), drawn, n_iter=2, cv=2, random_state=0).fit(X, y)
    assert cross_val_score(Quick(), X, y, cv=3, n_jobs=2).min() > 0.9


def test_its_probabilities_can_be_calibrated() -> None:
    X, y, truth = clusters(labelled=60)
    model = Quick().fit(X, y)
    known = y != -1
    calibrated = CalibratedClassifierCV(FrozenEstimator(model)).fit(X[known], y[known])
    assert np.mean(calibrated.predict(X) == truth) > 0.95
    whole = CalibratedClassifierCV(Quick(), cv=2).fit(X, truth)
    assert whole.predict_proba(X).shape == (150, 3)


# --- many classes, unequal classes -----------------------------------------------------------


def test_more_than_a_hundred_classes() -> None:
    X, y, truth = clusters(n=1200, K=120, labelled=0, d=30)
    rows = np.concatenate([np.flatnonzero(truth == k)[:3] for k in range(120)])
    y[rows] = truth[rows]
    model = SaaSClassifier(random_state=0, width=64, outer_iterations=1).fit(X, y)
    assert model.label_distributions_.shape == (1200, 120)
    assert model.settings_.min_probability == pytest.approx(0.5 / 120)
    assert np.mean(model.transduction_ == truth) > 0.9


def test_unequal_classes_stay_unequal() -> None:
    X, truth = make_blobs([400, 40, 20], n_features=8, cluster_std=2.0, random_state=0)
    y = np.full(len(truth), -1)
    for k in range(3):
        y[np.flatnonzero(truth == k)[:5]] = k
    model = SaaSClassifier(random_state=0).fit(X, y)
    found = np.bincount(model.transduction_, minlength=3)
    np.testing.assert_allclose(found, [400, 40, 20], atol=10)
    assert np.mean(model.transduction_ == truth) > 0.95


def test_string_classes_of_a_real_set() -> None:
    wine = load_wine(as_frame=True)
    truth = wine.target.map({0: "barolo", 1: "grignolino", 2: "barbera"})
    y = truth.where(np.arange(len(truth)) % 8 == 0)
    model = SaaSClassifier(random_state=0).fit(wine.data, y)
    assert model.classes_.tolist() == ["barbera", "barolo", "grignolino"]
    assert model.feature_names_in_.tolist() == list(wine.data.columns)
    assert np.mean(model.transduction_ == truth) > 0.9
