"""ℓ and q: the two terms of the objective, both means over the batch."""

import torch
from torch import Tensor


def cross_entropy(log_f: Tensor, P: Tensor) -> Tensor:
    """ℓ(B, P; w) = 1/|B| Σ_i ⟨-log f_w(x_i), P_i⟩; gradients flow into log_f, P is a constant."""
    if log_f.shape != P.shape:  # a single output would otherwise be broadcast, and learn nonsense
        raise ValueError(
            f"the network gives outputs of shape {tuple(log_f.shape)}, not {tuple(P.shape)}"
        )
    return -(log_f * P.detach().to(log_f.device)).sum(dim=1).mean()


def entropy(log_f: Tensor) -> Tensor:
    """q(B; w) = 1/|B| Σ_i ⟨-f_w(x_i), log f_w(x_i)⟩; gradients flow through both factors."""
    return -(log_f.exp() * log_f).sum(dim=1).mean()


def log_softmax(logits: Tensor) -> Tensor:
    """Log f_w(x), at least in single precision whatever the precision of the network."""
    return torch.log_softmax(logits, dim=1, dtype=torch.promote_types(logits.dtype, torch.float32))
