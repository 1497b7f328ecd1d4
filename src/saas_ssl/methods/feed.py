"""Batches of labelled and unlabelled rows, and the views of them that networks see."""

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import one_hot

from saas_ssl.algorithm.batches import cycle
from saas_ssl.algorithm.checks import check_labels, check_unlabelled
from saas_ssl.algorithm.network import View
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.methods.settings import Training
from saas_ssl.vision.augment import augmented_view, fit_preprocessing, named_recipe, strong


class Feed:
    """Endless batches of labelled and unlabelled rows, and what a network sees of them."""

    def __init__(
        self, data: PartiallyLabelled, settings: Training, generator: Generator, w: nn.Module
    ) -> None:
        check_labels(data)
        check_unlabelled(data)
        self.data, self.K, self._generator = data, data.n_classes, generator
        self.l, self.u = data.labelled_rows, data.unlabelled_rows
        device = next(w.parameters()).device
        self.preprocessing = fit_preprocessing(data.x, settings.whiten, data.rows).to(device)
        recipe, ndim = named_recipe(settings.augmentation), data.x.ndim
        stronger = strong(recipe) if ndim == 4 else recipe
        self._weak = _noisy(augmented_view(recipe, self.preprocessing, ndim), settings.noise)
        self._strong = _noisy(
            augmented_view(stronger, self.preprocessing, ndim), 2 * settings.noise
        )
        self._view = self._weak if settings.view == "weak" else self._strong
        self._labelled = cycle(len(self.l), settings.labelled_batch, generator)
        self._unlabelled = cycle(len(self.u), settings.unlabelled_batch, generator)

    def labelled(self) -> tuple[Tensor, Tensor]:
        """(x_l as it is seen, P_l one-hot) of the next batch."""
        rows = self.l[next(self._labelled)]
        x = self.view(self.data.x[rows])
        return x, one_hot(self.data.y[rows], self.K).to(x)

    def unlabelled(self) -> Tensor:
        """x_u of the next batch, as stored."""
        return self.numbered()[1]

    def numbered(self) -> tuple[Tensor, Tensor]:
        """(i, x_u as stored) of the next batch: which of the unlabelled rows they are."""
        i = next(self._unlabelled)
        return i, self.data.x[self.u[i]]

    def view(self, x: Tensor) -> Tensor:
        """One draw of the view that the settings name."""
        return self._view(x, self._generator)

    def weak(self, x: Tensor) -> Tensor:
        """One draw of the weak view."""
        return self._weak(x, self._generator)

    def strong(self, x: Tensor) -> Tensor:
        """One draw of the strong view."""
        return self._strong(x, self._generator)

    def example(self) -> Tensor:
        """Two rows as a network sees them."""
        return self.preprocessing(self.data.x[self.data.rows[:2]])

    def normal(self, *shape: int) -> Tensor:
        """Draws from N(0, 1), where the network is."""
        return torch.randn(shape, generator=self._generator).to(self.preprocessing.mean.device)


def _noisy(view: View, std: float) -> View:
    if std == 0:
        return view

    def noisy(x: Tensor, generator: Generator) -> Tensor:
        seen = view(x, generator)
        return seen + std * torch.randn(seen.shape, generator=generator).to(seen)

    return noisy
