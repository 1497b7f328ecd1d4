"""Π(P): the Euclidean projection onto S_α = {p : Σ_k p_k = 1, p_k ≥ α}."""

import torch
from torch import Tensor

from saas_ssl.algorithm.blocks import in_blocks


def check_alpha(alpha: float, K: int) -> None:
    """S_α has an inside only for 0 ≤ α < 1/K."""
    if not 0.0 <= alpha < 1.0 / K:
        raise ValueError(
            f"min_probability (alpha) = {alpha:g} is infeasible for {K} classes: "
            f"it must be at least 0 and below 1/{K} = {1.0 / K:g}"
        )


def project(P: Tensor, alpha: float) -> Tensor:
    """Π(P)_i = argmin_{p ∈ S_α} ‖p - P_i‖², exactly, for every row i of P (N x K).

    With s = 1 - Kα the solution is p_k = α + max(u_k - τ, 0), where u is P_i shifted so that its
    largest entry is 0, and τ follows from the sorted entries (Held, Wolfe and Crowder, 1974).
    """
    if P.ndim != 2 or P.shape[1] == 0 or not P.is_floating_point():
        raise ValueError(
            "project needs a floating-point matrix with a column for each class, "
            f"not {P.dtype} of shape {tuple(P.shape)}"
        )
    check_alpha(alpha, P.shape[1])
    P = P.detach()
    projected = torch.empty_like(P)
    # Sorting returns int64 indices beside the values: by blocks they take little memory.
    for source, target in zip(in_blocks(P), in_blocks(projected), strict=True):
        _project_block(source, alpha, target)
    return projected


def _project_block(P: Tensor, alpha: float, out: Tensor) -> None:
    K = P.shape[1]
    s = 1.0 - K * alpha
    # τ lies in [-s, 0), so entries below -s are α whatever they are: clamping them changes nothing
    # and keeps the sums exact for values of any size.
    u = (P - P.amax(dim=1, keepdim=True)).clamp_(min=-s)
    sorted_u = u.sort(dim=1, descending=True).values
    j = torch.arange(1, K + 1, dtype=P.dtype, device=P.device)
    tau_j = (sorted_u.cumsum(dim=1) - s) / j  # (N, K): τ if exactly the j largest entries exceed it
    support = (sorted_u > tau_j).sum(dim=1, keepdim=True)  # true for 1..ρ, false after; ρ ≥ 1
    tau = tau_j.gather(1, support.clamp(min=1) - 1)  # NaN in a row: no support, and NaN comes out
    torch.sub(u, tau, out=out)
    out.clamp_(min=0.0).add_(alpha)
