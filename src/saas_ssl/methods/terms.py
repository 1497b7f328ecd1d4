"""Terms that several objectives have in common, and how their batches go through a network."""

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from saas_ssl.algorithm.losses import cross_entropy, log_softmax


def together(w: nn.Module, *batches: Tensor) -> tuple[Tensor, ...]:
    """Log f of several batches in one pass, so that batch normalisation treats them alike."""
    log_f = log_softmax(w(torch.cat(batches)))
    parts: tuple[Tensor, ...] = log_f.split([len(x) for x in batches])
    return parts


def squared_difference(p: Tensor, q: Tensor) -> Tensor:
    """1/(|B| K) Σ_i ‖p_i - q_i‖²."""
    return (p - q).square().mean()


def confident_cross_entropy(log_f: Tensor, f_label: Tensor, threshold: Tensor | float) -> Tensor:
    """1/|B| Σ_i 1[max f_label_i ≥ τ_i] · -log f_i at argmax f_label_i; f_label is a constant."""
    top, label = f_label.detach().max(dim=1)
    hard = one_hot(label, log_f.shape[1]).to(log_f)
    return cross_entropy(log_f, hard * (top >= threshold).to(log_f)[:, None])
