"""Algorithm 1 and the projection, slowly: float64, numpy, explicit loops, the paper's notation.

Nothing here is shared with the package but the order in which rows are visited. The network is one
hidden layer, f_w(x) = softmax(W2 tanh(W1 x + b1) + b2), with its gradients written out by hand.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Weights = list[Array]  # [W1, b1, W2, b2]


def project_by_bisection(P: Array, alpha: float) -> Array:
    """Argmin ‖p - P_i‖ over S_alpha: p_k = max(P_ik - tau, alpha) with tau found by bisection."""
    projected = np.empty_like(P)
    for i in range(len(P)):
        low, high = P[i].min() - 1.0, P[i].max()
        for _ in range(200):
            tau = (low + high) / 2
            if np.maximum(P[i] - tau, alpha).sum() > 1.0:
                low = tau
            else:
                high = tau
        projected[i] = np.maximum(P[i] - high, alpha)
    return projected


def log_f(w: Weights, x: Array) -> Array:
    """Log f_w(x) for one x."""
    W1, b1, W2, b2 = w
    z = W2 @ np.tanh(W1 @ x + b1) + b2
    z = z - z.max()
    logs: Array = z - np.log(np.exp(z).sum())
    return logs


def gradient(w: Weights, xs: Array, Ps: Array, beta: float) -> Weights:
    """∇_w of 1/|B| Σ_i [ <-log f_w(x_i), P_i> + beta <-f_w(x_i), log f_w(x_i)> ]."""
    W1, b1, W2, _b2 = w
    total = [np.zeros_like(a) for a in w]
    for x, P in zip(xs, Ps, strict=True):
        h = np.tanh(W1 @ x + b1)
        logs = log_f(w, x)
        f = np.exp(logs)
        # d ell / dz = f sum(P) - P;  d q / dz_k = -f_k (log f_k - sum_j f_j log f_j)
        dz = f * P.sum() - P + beta * (-f * (logs - (f * logs).sum()))
        dh = W2.T @ dz * (1 - h**2)
        for a, g in zip(total, (np.outer(dh, x), dh, np.outer(dz, h), dz), strict=True):
            a += g / len(xs)
    return total


@dataclass
class Sgd:
    """w <- w - eta v with v <- mu v + g, the same v for both half-steps."""

    w: Weights
    mu: float
    v: Weights | None = field(default=None)

    def step(self, g: Weights, eta: float) -> None:
        self.v = g if self.v is None else [self.mu * v + d for v, d in zip(self.v, g, strict=True)]
        for a, v in zip(self.w, self.v, strict=True):
            a -= eta * v


@dataclass
class Trajectory:
    """What one pass through lines 5 to 15 leaves behind."""

    P_u: Array
    dP_u: Array
    cumulative_loss: float
    w: Weights


def outer_iteration(
    x_u: Array,
    P_u: Array,
    x_l: Array,
    P_l: Array,
    w: Weights,
    steps: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    *,
    T: int,
    B: int,
    eta_w: float,
    eta_P: float,
    alpha: float,
    beta: float,
    momentum: float,
    joint: bool = False,
    after: bool = False,
    triangular: bool = False,
) -> Trajectory:
    """Lines 5 to 15 of Algorithm 1 along a given sequence of batches (i of B^u_t, j of B^l_t)."""
    P_u = project_by_bisection(P_u, alpha)
    sgd = Sgd(w, momentum)
    dP_u = np.zeros_like(P_u)
    losses = np.zeros(len(x_u))
    for t, (i, j) in enumerate(steps):
        time = (t + 0.5) / len(steps)
        eta = eta_w
        if triangular:
            eta *= time / 0.25 if time < 0.25 else (1 - time) / 0.75
        before = {n: log_f(w, x_u[n]) for n in i}
        if joint:
            unlabelled = gradient(w, x_u[i], P_u[i], beta)
            labelled = gradient(w, x_l[j], P_l[j], 0.0)
            sgd.step([a + b for a, b in zip(unlabelled, labelled, strict=True)], eta)
        else:
            sgd.step(gradient(w, x_u[i], P_u[i], beta), eta)
            sgd.step(gradient(w, x_l[j], P_l[j], 0.0), eta)
        for n in i:
            minus_log_f = -(log_f(w, x_u[n]) if after else before[n])
            dP_u[n] += minus_log_f / B
            losses[n] += minus_log_f @ P_u[n] / T
    return Trajectory(
        project_by_bisection(P_u - eta_P * dP_u, alpha), dP_u, float(losses.mean()), w
    )


def classifier_epoch(
    sgd: Sgd,
    x_u: Array,
    y_u: Array,
    x_l: Array,
    y_l: Array,
    steps: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    eta: float,
    weight_decay: float,
) -> None:
    """Lines 21 and 22 along a given sequence of batches; y are one-hot rows."""
    for i, j in steps:
        for x, y in ((x_u[i], y_u[i]), (x_l[j], y_l[j])):
            g = gradient(sgd.w, x, y, 0.0)
            sgd.step([d + weight_decay * a for d, a in zip(g, sgd.w, strict=True)], eta)


def explained(row: list[float], x: float, epsilon: float) -> list[float]:
    """(1 - ε) softmax(a s) + ε/K with a = exp(x)."""
    exps = [math.exp(math.exp(x) * (value - max(row))) for value in row]
    return [(1 - epsilon) * e / sum(exps) + epsilon / len(row) for e in exps]


def grid_posterior(s: list[list[float]], y: list[int]) -> dict[tuple[float, float], float]:
    """P(log a, ε | y) on a grid, in loops over plain numbers."""
    logs = {}
    for x in [-1.5 + 4.0 * i / 80 for i in range(81)]:
        for epsilon in [0.2 * j / 10 for j in range(11)]:
            prior = -0.5 * ((x - math.log(1.75)) / 0.35) ** 2 + 19 * math.log(1 - epsilon)
            fit = sum(math.log(explained(row, x, epsilon)[k]) for row, k in zip(s, y, strict=True))
            logs[x, epsilon] = prior + fit
    most = max(logs.values())
    total = sum(math.exp(value - most) for value in logs.values())
    return {at: math.exp(value - most) / total for at, value in logs.items()}


def calibrated(s: list[list[float]], y: list[int], new: list[list[float]]) -> list[list[float]]:
    """p = E[(1 - ε) softmax(a s) + ε/K | y]."""
    answer = [[0.0] * len(row) for row in new]
    for (x, epsilon), weight in grid_posterior(s, y).items():
        for i, row in enumerate(new):
            for k, p in enumerate(explained(row, x, epsilon)):
                answer[i][k] += weight * p
    return answer


def mistaken(s: list[list[float]], y: list[int]) -> list[float]:
    """E[(ε/K) / p_y | y]: Bayes' rule for a label to be of the uniform part of the mixture."""
    answer = [0.0] * len(y)
    for (x, epsilon), weight in grid_posterior(s, y).items():
        for i, (row, k) in enumerate(zip(s, y, strict=True)):
            answer[i] += weight * (epsilon / len(row)) / explained(row, x, epsilon)[k]
    return answer
