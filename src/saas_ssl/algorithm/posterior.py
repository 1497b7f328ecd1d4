"""P_u before, between and after the outer iterations: initial draws, hard labels, stability."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from saas_ssl.algorithm.simplex import project


def gaussian_posterior(N_u: int, K: int, alpha: float, generator: Generator) -> Tensor:
    """P_u ~ N(0, I), projected onto S_α: line 1 of Algorithm 1."""
    return project(torch.randn(N_u, K, generator=generator), alpha)


def random_class_posterior(N_u: int, K: int, alpha: float, generator: Generator) -> Tensor:
    """P_u = 1/2 at a random class and 1/(2(K-1)) elsewhere, as the authors' code starts."""
    P_u = torch.full((N_u, K), 0.5 / (K - 1))
    P_u[torch.arange(N_u), torch.randint(K, (N_u,), generator=generator)] = 0.5
    return project(P_u, alpha)


def uniform_posterior(N_u: int, K: int, _alpha: float, _generator: Generator) -> Tensor:
    """P_u = 1/K: nothing is known, so the first trajectory learns from the labelled rows alone."""
    return torch.full((N_u, K), 1.0 / K)


INITIAL_POSTERIORS = {
    "gaussian": gaussian_posterior,
    "random-class": random_class_posterior,
    "uniform": uniform_posterior,
}
SUPERVISED = "supervised"
"""The outputs of networks that know the labelled rows alone, which training/pipeline.py makes."""


def hard_labels(P_u: Tensor) -> Tensor:
    """ŷ_i = argmax_k P_u[i, k]: line 18 of Algorithm 1."""
    return P_u.argmax(dim=1)


def outer_means(before: Tensor, after: Tensor, losses: Tensor) -> Tensor:
    """(1/N_u ⟨P_u, losses⟩ at the posterior before, share of rows whose hard label changed)."""
    cumulative_loss = (before * losses).sum(dtype=torch.float64) / len(before)
    return torch.stack([cumulative_loss, changed_share(before, after)])


def changed_share(before: Tensor, after: Tensor) -> Tensor:
    """The share of rows whose hard label differs between two posteriors."""
    return (hard_labels(before) != hard_labels(after)).double().mean()


def is_stable(changes: Sequence[float], tolerance: float, patience: int) -> bool:
    """Whether the last `patience` shares of changed labels all stayed below the tolerance."""
    return len(changes) >= patience and all(change < tolerance for change in changes[-patience:])
