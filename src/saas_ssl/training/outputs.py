"""What a trained network says of rows: probabilities, features, errors."""

import math

import torch
from torch import Tensor, nn

from saas_ssl.algorithm.losses import log_softmax
from saas_ssl.algorithm.network import unwrapped
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.vision.augment import Preprocessing

_ROWS_AT_ONCE = 512


def predict(
    network: nn.Module, preprocessing: Preprocessing, x: Tensor, rows: Tensor | None = None
) -> Tensor:
    """f_w(x) for rows as stored, all or some, without augmentation: (N, K) probabilities."""
    rows = torch.arange(len(x)) if rows is None else rows
    network = unwrapped(network).eval()
    with torch.no_grad():
        return torch.cat(
            [
                log_softmax(network(preprocessing(x[block]))).exp().cpu()
                for block in rows.split(_ROWS_AT_ONCE)
            ]
        )


def last_features(
    network: nn.Module, preprocessing: Preprocessing, x: Tensor, rows: Tensor
) -> Tensor:
    """(n, D): what the last layer of a network of ours sees of some rows."""
    trunk = nn.Sequential(*list(unwrapped(network).children())[:-1]).eval()
    with torch.no_grad():
        blocks = rows.split(_ROWS_AT_ONCE)
        return torch.cat([trunk(preprocessing(x[block])).float().cpu() for block in blocks])


def error_rate(network: nn.Module, preprocessing: Preprocessing, data: PartiallyLabelled) -> float:
    """The share of the labelled rows that the network gets wrong."""
    return wrong_rows(network, preprocessing, data).double().mean().item()


def wrong_rows(network: nn.Module, preprocessing: Preprocessing, data: PartiallyLabelled) -> Tensor:
    """Whether the network gets a labelled row wrong, for each of them in order."""
    rows = data.labelled_rows
    return predict(network, preprocessing, data.x, rows).argmax(dim=1) != data.y[rows]


def is_clearly_worse(error: float, other: float, rows: int) -> bool:
    """Whether errors on so many rows differ by more than two standard errors, and five points."""
    spread = math.sqrt((error * (1 - error) + other * (1 - other)) / rows)
    return error - other > max(0.05, 2 * spread)
