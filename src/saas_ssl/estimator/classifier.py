"""SaaSClassifier: the algorithm by the conventions of scikit-learn."""

import copy
import math
import time
import warnings
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from joblib import cpu_count
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.utils import _safe_indexing, check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from saas_ssl.algorithm.partially_labelled import SET_ASIDE, UNLABELLED, PartiallyLabelled
from saas_ssl.data.arrays import as_pixels, as_tensor, channels_first, pixel_range
from saas_ssl.estimator.persistence import Record, read_estimator, write_estimator
from saas_ssl.estimator.targets import as_targets, encoded, known_labels
from saas_ssl.images.form import Form
from saas_ssl.runs.model import Model
from saas_ssl.training.budget import Deadline, with_lengths
from saas_ssl.training.choosing import checked, chosen_settings
from saas_ssl.training.devices import find_place, one_thread
from saas_ssl.training.forecast import Forecast, measure
from saas_ssl.training.learning import Helpers, Learned, infers, learn
from saas_ssl.training.outputs import is_clearly_worse, predict
from saas_ssl.training.presets import Settings
from saas_ssl.training.problem import Problem, prepare
from saas_ssl.training.ranks import ALONE
from saas_ssl.training.times import seconds_of
from saas_ssl.vision.networks import NetworkFactory

Array = NDArray[Any]
_CPU = torch.device("cpu")


class SaaSClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # no stubs
    """A classifier that learns from labelled and unlabelled rows: Speed as a Supervisor.

    The labels of the unlabelled rows are those under which freshly drawn networks learn fastest; a
    network trained on them and on the given ones then predicts.

    Parameters
    ----------
    network : str or callable, default=None
        `mlp`, `small_conv`, `conv_large` or `resnet18`, or any factory
        ``(in_shape, n_classes, generator) -> nn.Module``; by default `mlp` for features and
        `small_conv` for images.
    width : int, default=None
        Units of a layer, or channels of the first one; by default the network's own.
    augmentation : str, default=None
        How rows are changed at random in phase one: `features` or `few-features` (Gaussian noise
        and dropout), `none`, or for images `digits`, `cifar10`, `svhn`, `translate`,
        `translate-flip`; `strong-` before any of them doubles it.
    classifier_augmentation : str, default=None
        The same for phase two; also `same` and `strong`, of what phase one has.
    whiten : bool, default=None
        Whether images are ZCA-whitened first.
    inner_epochs : int, default=None
        T, the length of the inner loop.
    outer_iterations : int, default=None
        M, outer iterations at most. With 0 nothing is inferred: the same network is trained on the
        labelled rows alone, with as many image passes as phase two would take.
    weight_lr : float, default=None
        Learning rate of the weights in phase one.
    momentum : float, default=None
        Momentum of the weights in both phases.
    posterior_lr : float, default=None
        Learning rate of the posterior.
    min_probability : float, default=None
        alpha, the least probability of a class in the posterior; by default 0.5 / n_classes.
    entropy_weight : float, default=None
        beta, the weight of the entropy of the outputs.
    langevin_temperature : float, default=None
        Variance of the noise on the weights, in units of `weight_lr`.
    batch_size : int, default=None
        Unlabelled rows in a step.
    labelled_batch_size : int, default=None
        Labelled rows in a step.
    inner_schedule : {'constant', 'triangular'}, default=None
        `weight_lr` over the inner loop.
    weights : {'resample', 'reset'}, default=None
        Fresh weights for each outer iteration, or the first draw again.
    update : {'alternate', 'joint'}, default=None
        Unlabelled then labelled half-step, or one step on the sum.
    gradient_at : {'before', 'after'}, default=None
        Posterior gradient at the weights before the step or after it.
    initial_posterior : {'gaussian', 'random-class', 'uniform', 'supervised'}, default=None
        Where the posterior starts.
    stability_tolerance : float, default=None
        Stop phase one when fewer than this share of labels change ...
    stability_patience : int, default=None
        ... so many times in a row.
    classifier_lr : float, default=None
        First or highest learning rate of phase two.
    classifier_weight_decay : float, default=None
        Weight decay of phase two.
    classifier_schedule : {'halving', 'constant', 'triangular'}, default=None
        Learning rate over phase two.
    classifier_epochs : int, default=None
        Epochs of phase two, unless halving.
    classifier_patience : int, default=None
        Epochs without a rise before halving.
    classifier_final_lr : float, default=None
        Halving ends when it reaches this.
    validation_share : float, default=None
        Share of the labelled rows kept for the schedule `halving`, which nothing else needs.
    random_state : int, RandomState instance or None, default=None
        The seed of every draw.
    device : str, default='auto'
        `cpu`, `cuda`, `cuda:1`, `mps`, or `auto`, which is a GPU if there is one.
    n_jobs : int, default=None
        So many trajectories at once, in as many processes, each outer iteration moving the
        posterior by their mean: more of them give a better result, not only a faster one. -1 means
        all processors, so that the result depends on the machine.
    verbose : int, default=0
        1 prints a line for every outer iteration.
    budget : str or float, default=None
        Time for `fit`, as `'90s'`, `'20m'`, `'1.5h'`, or in seconds: phase one and two are fitted
        to it, so that the result depends on the speed of the machine.

    Where a setting is None it follows from the number and the shape of the rows (docs/defaults.md).

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The known labels, sorted.
    transduction_ : ndarray of shape (n_samples,)
        The label of each row of `fit`: given, or inferred.
    label_distributions_ : ndarray of shape (n_samples, n_classes)
        The posterior of each row: 1 for a given label, P_u for others. P_u is not calibrated: its
        largest value is 1 - (n_classes - 1) * min_probability, which most rows reach.
    n_iter_ : int
        Outer iterations done.
    history_ : list of dict
        One for each outer iteration (`phase` is `one`; `outer`, `cumulative_loss`, `changed`, and
        `inner_error`, on given labels) and for each epoch of phase two (`epoch`, `loss`, `rate`);
        all have `image_passes` and `seconds`.
    network_ : nn.Module
        The classifier, on the CPU.
    settings_ : Settings
        Every setting as it was used.
    n_features_in_ : int
        Numbers in a row.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X was a data frame.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from saas_ssl import SaaSClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> some = y.copy()
    >>> some[100:] = -1  # unlabelled
    >>> model = SaaSClassifier(random_state=0).fit(X, some)
    >>> float((model.transduction_ == y).mean()) > 0.9
    True
    """

    def __init__(
        self,
        *,
        network: str | NetworkFactory | None = None,
        width: int | None = None,
        augmentation: str | None = None,
        classifier_augmentation: str | None = None,
        whiten: bool | None = None,
        inner_epochs: int | None = None,
        outer_iterations: int | None = None,
        weight_lr: float | None = None,
        momentum: float | None = None,
        posterior_lr: float | None = None,
        min_probability: float | None = None,
        entropy_weight: float | None = None,
        langevin_temperature: float | None = None,
        batch_size: int | None = None,
        labelled_batch_size: int | None = None,
        inner_schedule: str | None = None,
        weights: str | None = None,
        update: str | None = None,
        gradient_at: str | None = None,
        initial_posterior: str | None = None,
        stability_tolerance: float | None = None,
        stability_patience: int | None = None,
        classifier_lr: float | None = None,
        classifier_weight_decay: float | None = None,
        classifier_schedule: str | None = None,
        classifier_epochs: int | None = None,
        classifier_patience: int | None = None,
        classifier_final_lr: float | None = None,
        validation_share: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        budget: str | float | None = None,
    ) -> None:
        self.network = network
        self.width = width
        self.augmentation = augmentation
        self.classifier_augmentation = classifier_augmentation
        self.whiten = whiten
        self.inner_epochs = inner_epochs
        self.outer_iterations = outer_iterations
        self.weight_lr = weight_lr
        self.momentum = momentum
        self.posterior_lr = posterior_lr
        self.min_probability = min_probability
        self.entropy_weight = entropy_weight
        self.langevin_temperature = langevin_temperature
        self.batch_size = batch_size
        self.labelled_batch_size = labelled_batch_size
        self.inner_schedule = inner_schedule
        self.weights = weights
        self.update = update
        self.gradient_at = gradient_at
        self.initial_posterior = initial_posterior
        self.stability_tolerance = stability_tolerance
        self.stability_patience = stability_patience
        self.classifier_lr = classifier_lr
        self.classifier_weight_decay = classifier_weight_decay
        self.classifier_schedule = classifier_schedule
        self.classifier_epochs = classifier_epochs
        self.classifier_patience = classifier_patience
        self.classifier_final_lr = classifier_final_lr
        self.validation_share = validation_share
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.budget = budget

    def fit(self, X: Any, y: Any) -> Self:
        """Infer the labels of the rows without one, and train the classifier.

        X is features (n, d), or images (n, H, W), (n, H, W, C) or (n, C, H, W) of any numbers:
        arrays, tensors, or frames of pandas or polars. y has a number, a text or a bool for each
        row, and -1, NaN, None or empty text where the label is not known.
        """
        started = time.monotonic()
        x = self._rows(X, reset=True)
        classes, codes = self._targets(X, y)
        names = [str(label) for label in classes.tolist()]
        if (unlabelled := codes == UNLABELLED).sum() == 1:
            codes[unlabelled] = SET_ASIDE  # there is nothing to learn from a single one
        data = PartiallyLabelled(x, codes, names, [str(row) for row in range(len(x))])
        with one_thread():
            problem, given = self._problem(data)
            problem, deadline = self._within_budget(problem, given, started)
            learned = learn(problem, self._helpers(), deadline, self._say)
        self._warn_of_short_loops(problem, learned)
        self.classes_, self.settings_ = classes, problem.settings
        self.network_, self._preprocessing = learned.network, problem.preprocessing.to(_CPU)
        self.n_iter_, self.history_ = learned.n_outer, learned.history
        distributions = self._distributions(data, learned)
        self.label_distributions_ = distributions.numpy()
        self.transduction_ = classes[distributions.argmax(dim=1).numpy()]
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Probabilities of the classes, not calibrated, in the order of `classes_`."""
        check_is_fitted(self, "network_")
        return self._outputs(self._rows(X, reset=False)).numpy()

    def predict(self, X: Any) -> Array:
        """The most probable class of each row; rows of `fit` may differ from `transduction_`."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        labels: Array = self.classes_[most_probable]
        return labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean accuracy over the rows whose label is known: -1 is not a class to be right about."""
        known, labels = known_labels(as_targets(y))
        if not known.any():
            raise ValueError("y has no known label, so there is no score")
        rows = np.flatnonzero(known)
        weight = None if sample_weight is None else np.asarray(sample_weight)[rows]
        found = self.predict(_safe_indexing(X, rows))
        return float(accuracy_score(labels, found, sample_weight=weight))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a directory of JSON and safetensors that `load` and `saas predict` read.

        A network of your own is saved by its weights: `load` needs its factory again.
        """
        check_is_fitted(self, "network_")
        own = callable(self.network)
        parameters = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        plain = (bool, int, float, str)  # neither a factory nor the state of a generator
        record = Record(
            parameters={name: v for name, v in parameters.items() if isinstance(v, plain)},
            classes=self.classes_.tolist(),
            dtype=self.classes_.dtype.str,
            settings=self.settings_,
            n_iter=self.n_iter_,
            history=self.history_,
            pixel_range=self.pixel_range_,
        )
        in_shape, names = self._in_shape, getattr(self, "feature_names_in_", None)
        model = Model(
            self.network_,
            None if own else self.settings_.network,
            self.settings_.width,
            in_shape,
            [str(label) for label in self.classes_.tolist()],
            self._preprocessing,
            Form(in_shape[1], in_shape[2], in_shape[0]) if len(in_shape) == 3 else None,
            None if names is None else names.tolist(),
        )
        write_estimator(
            Path(path), record, model, torch.from_numpy(self.label_distributions_), overwrite
        )

    @classmethod
    def load(cls, path: str | Path, network: NetworkFactory | None = None) -> Self:
        """A saved estimator. Nothing in its directory can make this run code.

        `network` is the factory of one that was no network of ours.
        """
        record, model, posterior = read_estimator(Path(path), network)
        unknown = sorted(record.parameters.keys() - cls().get_params())
        if unknown:
            raise ValueError(f"{path} has the parameter {unknown[0]!r}, which is not known here")
        self: Self = cls().set_params(**record.parameters)
        if model.name is None:
            self.network = network
        self.classes_, self.settings_ = record.typed_classes(), record.settings
        self.network_, self._preprocessing = model.network, model.preprocessing
        self.n_iter_, self.history_ = record.n_iter, record.history
        self._in_shape, self.pixel_range_ = tuple(model.in_shape), record.pixel_range
        self.n_features_in_ = math.prod(model.in_shape)
        if model.features is not None:
            self.feature_names_in_ = np.array(model.features, dtype=object)
        self.label_distributions_ = posterior.numpy()
        self.transduction_ = self.classes_[posterior.argmax(dim=1).numpy()]
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _rows(self, X: Any, reset: bool) -> Tensor:
        """X as the network takes it; `reset` learns what later rows must be like."""
        self._in_shape: tuple[int, ...]
        if isinstance(X, Tensor):
            X = X.detach().cpu()
            X = (X.float() if X.dtype == torch.bfloat16 else X).numpy()
        if (X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim) in (3, 4):
            return self._images(X, reset)
        if reset:
            self.pixel_range_: tuple[float, float] | None = None
        elif self.pixel_range_ is not None:
            raise ValueError(f"images of shape {self._in_shape} are needed, but X is a table")
        half = getattr(X, "dtype", None) == np.float16
        dtype = np.float32 if half else (np.float64, np.float32)
        x = as_tensor(np.ascontiguousarray(validate_data(self, X, dtype=dtype, reset=reset)))
        self._in_shape = tuple(x.shape[1:])
        return x

    def _images(self, X: Any, reset: bool) -> Tensor:
        array = check_array(X, allow_nd=True, dtype=None, input_name="X")
        if array.dtype.kind not in "buif":
            raise ValueError(f"images must be numbers, not {array.dtype}")
        if array.dtype.kind == "u" and array.dtype != np.uint8:
            array = array.astype(np.int64)  # torch does little with other unsigned numbers
        x = channels_first(as_tensor(array))
        shape = tuple(x.shape[1:])
        if reset:
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
            self.n_features_in_ = math.prod(shape)
            self._in_shape, self.pixel_range_ = shape, pixel_range(x)
        elif shape != self._in_shape or self.pixel_range_ is None:
            raise ValueError(f"rows of shape {self._in_shape} are needed, but X has {shape}")
        return as_pixels(x, *self.pixel_range_)

    def _targets(self, X: Any, y: Any) -> tuple[Array, Tensor]:
        """(Classes, the number of each label's class or -1), refused unless there are two."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        y = column_or_1d(as_targets(y), warn=True)
        check_consistent_length(X, y)
        classes, codes = encoded(y)
        if len(classes) == 0:
            raise ValueError("y has no known label: give at least one label of each class")
        if classes.dtype.kind == "f" and (classes != classes.round()).any():
            raise ValueError("Unknown label type: labels are whole numbers, texts or bools")
        if len(classes) == 1:
            raise ValueError(
                f"y has one class only, {classes[0]!r}: there must be at least two to tell apart, "
                "and -1 means unlabelled"
            )
        return classes, torch.from_numpy(codes)

    def _problem(self, data: PartiallyLabelled) -> tuple[Problem, dict[str, Any]]:
        """The data with settings for them, and which settings were given."""
        given = {
            name: _plain(value)
            for name in Settings.model_fields
            if (value := getattr(self, name)) is not None and not callable(value)
        }
        if self.classifier_schedule != "halving":
            given.setdefault("validation_share", 0.0)  # no label is set aside for nothing
        given = checked(None, given)
        settings = chosen_settings(data, None, given)
        place = find_place(self.device, "fp32", compiled=False)
        return prepare(data, settings, self._seed(), self._factory(), place), given

    def _within_budget(
        self, problem: Problem, given: dict[str, Any], started: float
    ) -> tuple[Problem, Deadline | None]:
        """The problem with loops of a length that fits the budget, and when it ends."""
        if self.budget is None or not infers(problem):
            return problem, None
        if isinstance(self.budget, Real) and self.budget <= 0:
            raise ValueError(f"budget must be a time above 0, not {self.budget}")
        seconds = seconds_of(self.budget) if isinstance(self.budget, str) else float(self.budget)

        def left() -> float:
            return seconds - (time.monotonic() - started)

        if problem.settings.classifier_schedule == "halving":  # has no set length
            raise ValueError("a budget cannot be kept with classifier_schedule='halving'")
        forecast = replace(Forecast.of(problem, measure(problem), 0), finish=0.0)  # no files
        fitted = with_lengths(problem, forecast, left(), "seconds", given)
        return fitted, Deadline(left, forecast, problem.settings, given, ALONE)

    def _helpers(self) -> Helpers:
        n_jobs = 1 if self.n_jobs is None else self.n_jobs
        if not isinstance(n_jobs, Integral) or n_jobs == 0:
            raise ValueError(f"n_jobs must be a number of processes or -1 for all, not {n_jobs!r}")
        processes = n_jobs if n_jobs > 0 else max(1, cpu_count() + 1 + n_jobs)
        return Helpers(self._factory(), self.device, int(processes) - 1)

    def _factory(self) -> NetworkFactory | None:
        return self.network if callable(self.network) else None

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _say(self, line: str) -> None:
        if self.verbose:
            print(f"[{type(self).__name__}] {line}")

    def _warn_of_short_loops(self, problem: Problem, learned: Learned) -> None:
        """The posterior becomes as good as the networks of the inner loop, and no better."""
        if learned.P_u is None:
            return
        inner = [line["inner_error"] for line in learned.history if line["phase"] == "one"][-1]
        rows, T = len(problem.probe.labelled_rows), problem.settings.inner_epochs
        if is_clearly_worse(inner, learned.error, rows):
            warnings.warn(
                f"the inner loop seems too short: its networks end at {inner:.1%} error on given "
                f"labels where the classifier has {learned.error:.1%}; try inner_epochs={2 * T}",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _distributions(self, data: PartiallyLabelled, learned: Learned) -> Tensor:
        """One-hot for given labels, and for the others P_u, or the outputs if none was inferred."""
        distributions = torch.zeros(len(data.y), data.n_classes)
        given, rest = data.labelled_rows, (data.y < 0).nonzero().squeeze(1)
        distributions[given, data.y[given]] = 1.0
        if len(rest):
            P_u = learned.P_u
            distributions[rest] = self._outputs(data.x[rest]) if P_u is None else P_u.float()
        return distributions

    def _outputs(self, x: Tensor) -> Tensor:
        """f_w(x) where the device is; what was learned stays on the CPU."""
        place = find_place(self.device, "fp32", compiled=False)
        network = self.network_
        if place.device != _CPU:
            network = copy.deepcopy(network).to(place.device)
        return predict(network, self._preprocessing.to(place.device), x)


def _plain(value: Any) -> Any:
    """Numbers that numpy draws for a search are as good as Python's."""
    return value.item() if isinstance(value, np.generic) else value
