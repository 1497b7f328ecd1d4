"""The losses of all methods in float64 and explicit loops, for softmax regression f(x; W).

W is (K, D + 1), its last column the biases. Gradients are central differences.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Loss = Callable[[Array], float]


def f(W: Array, x: Array) -> Array:
    """Softmax outputs for one row."""
    logits = [sum(W[k][d] * x[d] for d in range(len(x))) + W[k][-1] for k in range(len(W))]
    top = max(logits)
    total = sum(math.exp(logit - top) for logit in logits)
    return np.array([math.exp(logit - top) / total for logit in logits])


def logits(W: Array, x: Array) -> Array:
    return np.array([sum(W[k][:-1] * x) + W[k][-1] for k in range(len(W))])


def gradient(loss: Loss, W: Array, h: float = 1e-6) -> Array:
    """∂loss/∂W by central differences."""
    G = np.zeros_like(W)
    for place in np.ndindex(*W.shape):
        up, down = W.copy(), W.copy()
        up[place] += h
        down[place] -= h
        G[place] = (loss(up) - loss(down)) / (2 * h)
    return G


def cross_entropy(W: Array, x: Array, P: Array) -> float:
    total = 0.0
    for x_i, P_i in zip(x, P, strict=True):
        total -= sum(p * math.log(q) for p, q in zip(P_i, f(W, x_i), strict=True))
    return total / len(x)


def entropy(W: Array, x: Array) -> float:
    return float(sum(-sum(q * math.log(q) for q in f(W, x_i)) for x_i in x) / len(x))


def squared(W: Array, x: Array, targets: Array) -> float:
    """Mean over rows and classes of (f(x) - target)²."""
    total = 0.0
    for x_i, z in zip(x, targets, strict=True):
        total += sum((a - b) ** 2 for a, b in zip(f(W, x_i), z, strict=True))
    return float(total / (len(x) * len(W)))


def kl(p: Array, q: Array) -> float:
    return float(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))


def adversarial(W: Array, x: Array, d: Array, xi: float, epsilon: float) -> Array:
    """r for each row: the direction of the gradient of KL at ξ d/‖d‖, analytically."""
    r = np.zeros_like(x)
    for i in range(len(x)):
        p = f(W, x[i])
        q = f(W, x[i] + xi * d[i] / math.sqrt(sum(d[i] ** 2)))
        g = np.array([sum((q - p) * W[:, j]) for j in range(len(d[i]))])
        r[i] = epsilon * g / math.sqrt(sum(g**2))
    return r


def smoothness(W: Array, x: Array, r: Array, p: list[Array]) -> float:
    """Mean KL(p ‖ f(x + r)), p and r constants."""
    return sum(kl(p[i], f(W, x[i] + r[i])) for i in range(len(x))) / len(x)


def stability(W: Array, views: list[Array]) -> float:
    """Σ over pairs of views of squared distances, mean over rows."""
    total = 0.0
    for j in range(len(views)):
        for k in range(j):
            for a, b in zip(views[j], views[k], strict=True):
                total += sum((f(W, a) - f(W, b)) ** 2)
    return total / len(views[0])


def exclusivity(W: Array, views: list[Array]) -> float:
    total, n = 0.0, 0
    for view in views:
        for x_i in view:
            q = f(W, x_i)
            for k in range(len(q)):
                total -= q[k] * math.prod(1 - q[m] for m in range(len(q)) if m != k)
            n += 1
    return total / n


def confident(W: Array, x: Array, labels: list[Array], thresholds: list[float]) -> float:
    """Cross-entropy at the argmax of the labels where their maximum reaches the threshold."""
    total = 0.0
    for x_i, q, threshold in zip(x, labels, thresholds, strict=True):
        if max(q) >= threshold:
            total -= math.log(f(W, x_i)[int(np.argmax(q))])
    return total / len(x)


def real_or_generated(W: Array, real: Array, made: Array) -> float:
    def D(x: Array) -> float:
        Z = sum(math.exp(logit) for logit in logits(W, x))
        return Z / (Z + 1)

    told = -sum(math.log(D(x)) for x in real) / len(real)
    return 0.5 * (told - sum(math.log(1 - D(x)) for x in made) / len(made))


def fairness(W: Array, x: Array, p: Array, h: Array) -> float:
    """Σ_c SumNorm(p/h)_c log SumNorm(p̄/h̄)_c over the given rows."""
    K = len(W)
    outputs = [f(W, x_i) for x_i in x]
    mean = np.mean(outputs, axis=0)
    count = [sum(int(np.argmax(q)) == k for q in outputs) / len(x) for k in range(K)]
    wanted, got = p / h, np.array([mean[k] / count[k] if count[k] else 0.0 for k in range(K)])
    wanted, got = wanted / wanted.sum(), got / got.sum()
    return float(sum(wanted[k] * math.log(got[k] + 1e-12) for k in range(K)))
