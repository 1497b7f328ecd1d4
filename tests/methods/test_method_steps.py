"""One step of each method against a reference in float64 and explicit loops."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

import method_reference as ref
from saas_ssl.algorithm.descent import Descent
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.algorithm.schedules import ramp_up
from saas_ssl.methods import METHODS
from saas_ssl.methods.feed import Feed
from saas_ssl.methods.gan_feature_matching import (
    new_generator,
)
from saas_ssl.methods.saas_vat import SaasVat, half_steps
from saas_ssl.methods.training import Trained

TOY_K, TOY_D = 3, 4
PLAIN = {
    "passes": 1e-9,  # a single step
    "noise": 0.5,
    "labelled_batch": 3,
    "unlabelled_batch": 4,
    "lr": 0.1,
    "momentum": 0.0,
    "weight_decay": 0.0,
    "schedule": "constant",
}


@cache
def toy() -> PartiallyLabelled:
    draws = np.random.default_rng(0)
    x = torch.from_numpy(draws.normal(size=(12, TOY_D)))
    y = torch.tensor([0, 1, 2, 0, 1, 2] + [-1] * 6)
    return PartiallyLabelled(x, y, ["a", "b", "c"], [str(row) for row in range(12)])


class Regression(nn.Module):
    """Softmax regression in double precision, whatever it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(TOY_D, TOY_K, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(x.double())
        return logits


def regression(generator: Generator) -> nn.Module:
    network = Regression()
    with torch.no_grad():
        for w in network.parameters():
            w.copy_(torch.randn(w.shape, generator=generator))
    return network


def weights(network: nn.Module) -> ref.Array:
    columns = [p.detach().numpy().reshape(TOY_K, -1) for p in network.parameters()]
    return np.concatenate(columns, axis=1)


def replay(settings: Any) -> tuple[ref.Array, Feed]:
    """The weights before the first step, and the draws of that step once more."""
    generator = generator_at(5)
    w = regression(generator)
    feed = Feed(toy(), settings, generator, w)
    torch.randint(1 << 62, (), generator=generator)  # the layers' draws
    return weights(w), feed


def trained(method: str, **given: Any) -> tuple[Trained, Any]:
    settings = METHODS[method].settings.model_validate({**PLAIN, **given})
    return METHODS[method].train(toy(), regression, settings, generator_at(5)), settings


def labelled(feed: Feed) -> tuple[ref.Array, ref.Array]:
    x, P = feed.labelled()
    return x.double().numpy(), P.double().numpy()


def check_step(result: Trained, W: ref.Array, loss: ref.Loss, atol: float = 1e-8) -> None:
    expected = W - 0.1 * ref.gradient(loss, W)
    np.testing.assert_allclose(weights(result.network), expected, atol=atol)
    terms = {k: v for k, v in result.history[0].items() if k not in ("t", "steps", "passes")}
    assert sum(terms.values()) == pytest.approx(loss(W), abs=atol)


def test_supervised_step() -> None:
    result, settings = trained("supervised")
    W, feed = replay(settings)
    x, P = labelled(feed)
    check_step(result, W, lambda V: ref.cross_entropy(V, x, P))


def test_pi_model_step() -> None:
    result, settings = trained("pi_model", consistency=20.0)
    W, feed = replay(settings)
    (x, P), rows = labelled(feed), feed.unlabelled()
    a, b = (feed.view(rows).double().numpy() for _ in range(2))
    weight = 20.0 * math.exp(-5.0)  # at t = 0

    def loss(V: ref.Array) -> float:
        other = np.array([ref.f(V, x_i) for x_i in b])
        return ref.cross_entropy(V, x, P) + weight * ref.squared(V, a, other)

    check_step(result, W, loss)


def test_temporal_ensembling_learns_from_the_second_visit_on() -> None:
    alpha = 0.6
    # Two steps of 3 + 4 image passes each.
    result, settings = trained("temporal_ensembling", passes=14.0, alpha=alpha, consistency=20.0)
    assert result.history[-1]["steps"] == 2
    W, feed = replay(settings)
    Z, seen = np.zeros((6, TOY_K)), [0] * 6
    for step in range(2):
        (x, P), (i, rows) = labelled(feed), feed.numbered()
        x_u, weight = feed.view(rows).double().numpy(), 20.0 * ramp_up(step / 2, settings.ramp_up)
        z = [ref.f(W, x_i) for x_i in x_u]
        before, counts, at = Z.copy(), list(seen), i.tolist()

        def loss(V: ref.Array, x=x, P=P, x_u=x_u, Z=before, n=counts, at=at, c=weight) -> float:  # type: ignore[no-untyped-def]
            total = 0.0
            for x_i, row in zip(x_u, at, strict=True):
                if n[row]:
                    target = Z[row] / (1 - alpha ** n[row])
                    total += sum((ref.f(V, x_i) - target) ** 2)
            return float(ref.cross_entropy(V, x, P) + c * total / (len(at) * TOY_K))

        W = W - 0.1 * ref.gradient(loss, W)
        for row, z_i in zip(at, z, strict=True):
            Z[row] = alpha * Z[row] + (1 - alpha) * z_i
            seen[row] += 1
    assert max(seen) == 2
    np.testing.assert_allclose(weights(result.network), W, atol=1e-6)  # Z is in single precision


def test_mean_teacher_step() -> None:
    result, settings = trained("mean_teacher", consistency=20.0)
    W, feed = replay(settings)
    (x, P), rows = labelled(feed), feed.unlabelled()
    student, teacher = (feed.view(rows).double().numpy() for _ in range(2))
    targets = np.array([ref.f(W, x_i) for x_i in teacher])  # constants
    weight = 20.0 * math.exp(-5.0)
    check_step(
        result,
        W,
        lambda V: ref.cross_entropy(V, x, P) + weight * ref.squared(V, student, targets),
    )


def test_the_teacher_is_the_average_of_the_students() -> None:
    # A step takes 3 + 4 rows forward and backward, and for the teacher forward: half of it here.
    result, settings = trained("mean_teacher", passes=21.0, consistency=20.0)
    assert result.history[-1]["steps"] == 2
    W, feed = replay(settings)
    students, teacher = [], W
    for step in range(2):
        (x, P), rows = labelled(feed), feed.unlabelled()
        seen, other = (feed.view(rows).double().numpy() for _ in range(2))
        targets = np.array([ref.f(teacher, x_i) for x_i in other])
        weight = 20.0 * ramp_up(step / 2, settings.ramp_up)

        def loss(V: ref.Array, x=x, P=P, seen=seen, targets=targets, c=weight) -> float:  # type: ignore[no-untyped-def]
            return ref.cross_entropy(V, x, P) + float(c * ref.squared(V, seen, targets))

        W = W - 0.1 * ref.gradient(loss, W)
        students.append(W)
        teacher = np.mean(students, axis=0)  # at first, before the decay is reached
    np.testing.assert_allclose(weights(result.network), teacher, atol=1e-8)
    assert np.abs(students[1] - students[0]).max() > 1e-3


def test_vat_step() -> None:
    result, settings = trained("vat", epsilon=2.0, xi=0.1)
    W, feed = replay(settings)
    (x, P), x_u = labelled(feed), feed.view(feed.unlabelled()).double().numpy()
    d = feed.normal(*x_u.shape).double().numpy()
    r = ref.adversarial(W, x_u, d, 0.1, 2.0)
    p = [ref.f(W, x_i) for x_i in x_u]
    check_step(
        result,
        W,
        lambda V: ref.cross_entropy(V, x, P) + ref.smoothness(V, x_u, r, p) + ref.entropy(V, x_u),
        atol=1e-6,  # x + r is in single precision here; half_steps below is not
    )


def test_stochastic_transformations_step() -> None:
    result, settings = trained("stochastic_transformations", views=3)
    W, feed = replay(settings)
    (x, P), rows = labelled(feed), feed.unlabelled()
    views = [feed.view(rows).double().numpy() for _ in range(3)]
    check_step(
        result,
        W,
        lambda V: (
            ref.cross_entropy(V, x, P) + ref.stability(V, views) + 0.1 * ref.exclusivity(V, views)
        ),
    )


def test_pseudo_label_step() -> None:
    result, settings = trained("pseudo_label", alpha_f=2.0, begin=0.0, full=0.0, threshold=0.6)
    W, feed = replay(settings)
    (x, P), x_u = labelled(feed), feed.view(feed.unlabelled()).double().numpy()
    q = [ref.f(W, x_i) for x_i in x_u]
    assert 0 < sum(max(q_i) >= 0.6 for q_i in q) < len(q)
    check_step(
        result,
        W,
        lambda V: ref.cross_entropy(V, x, P) + 2.0 * ref.confident(V, x_u, q, [0.6] * 4),
    )


def test_fixmatch_step() -> None:
    result, settings = trained("fixmatch", threshold=0.6, unlabelled_weight=2.0)
    W, feed = replay(settings)
    (x, P), rows = labelled(feed), feed.unlabelled()
    q = [ref.f(W, x_i) for x_i in feed.weak(rows).double().numpy()]
    strong = feed.strong(rows).double().numpy()
    assert 0 < sum(max(q_i) >= 0.6 for q_i in q) < len(q)
    check_step(
        result,
        W,
        lambda V: ref.cross_entropy(V, x, P) + 2.0 * ref.confident(V, strong, q, [0.6] * 4),
    )


def test_freematch_step() -> None:
    decay = 0.1
    result, settings = trained("freematch", decay=decay, fairness=0.3)
    W, feed = replay(settings)
    (x, P), rows = labelled(feed), feed.unlabelled()
    q = [ref.f(W, x_i) for x_i in feed.weak(rows).double().numpy()]
    strong = feed.strong(rows).double().numpy()
    tau = decay / TOY_K + (1 - decay) * sum(max(q_i) for q_i in q) / len(q)
    p = decay / TOY_K + (1 - decay) * np.mean(q, axis=0)
    shares = [sum(int(np.argmax(q_i)) == k for q_i in q) / len(q) for k in range(TOY_K)]
    h = decay / TOY_K + (1 - decay) * np.array(shares)
    limits = [tau * p[int(np.argmax(q_i))] / max(p) for q_i in q]
    sure = [max(q_i) >= limit for q_i, limit in zip(q, limits, strict=True)]
    assert 0 < sum(sure) < len(q)

    def loss(V: ref.Array) -> float:
        unlabelled = ref.confident(V, strong, q, limits)
        return ref.cross_entropy(V, x, P) + unlabelled + 0.3 * ref.fairness(V, strong[sure], p, h)

    check_step(result, W, loss)


def test_gan_steps() -> None:
    result, settings = trained("gan_feature_matching", adversarial_weight=0.7, latent=2)
    generator = generator_at(5)
    w = regression(generator)
    W = weights(w)
    G = new_generator((TOY_D,), settings, generator, torch.device("cpu")).train()
    feed = Feed(toy(), settings, generator, w)
    torch.randint(1 << 62, (), generator=generator)
    (x, P), x_u = labelled(feed), feed.view(feed.unlabelled()).double().numpy()
    made = G(feed.normal(4, 2)).detach().double().numpy()
    others = feed.view(feed.unlabelled()).double().numpy()

    def loss(V: ref.Array) -> float:
        return ref.cross_entropy(V, x, P) + 0.7 * ref.real_or_generated(V, x_u, made)

    expected = W - 0.1 * ref.gradient(loss, W)
    np.testing.assert_allclose(weights(result.network), expected, atol=1e-7)
    # The last layer is the only one, so the features are the inputs.
    distance = np.abs(others.mean(axis=0) - made.mean(axis=0)).mean()
    assert result.history[0]["generator"] == pytest.approx(distance, abs=1e-6)


def test_half_steps_of_saas_with_vat() -> None:
    settings = SaasVat(passes=1.0, epsilon=2.0, xi=1e-4, smoothness=0.5)
    draws = np.random.default_rng(1)
    x_u, x_l, d = (draws.normal(size=(4, TOY_D)) for _ in range(3))
    P_u, P_l = draws.dirichlet(np.ones(TOY_K), size=4), np.eye(TOY_K)[[0, 1, 2, 0]]
    w = regression(generator_at(3))
    W, sgd = weights(w), Descent(w, 0.0, 0, torch.zeros(()), ())
    sgd.set_rate(0.1)
    batch = tuple(map(torch.from_numpy, (x_u, x_l, P_l)))
    terms, log_f = half_steps(sgd, batch, torch.from_numpy(P_u), 0.7, torch.from_numpy(d), settings)  # type: ignore[arg-type]
    p, r = [ref.f(W, x_i) for x_i in x_u], ref.adversarial(W, x_u, d, 1e-4, 2.0)

    def first(V: ref.Array) -> float:
        unlabelled = ref.cross_entropy(V, x_u, P_u) + 0.7 * ref.entropy(V, x_u)
        return unlabelled + 0.5 * ref.smoothness(V, x_u, r, p)

    between = W - 0.1 * ref.gradient(first, W)
    after = between - 0.1 * ref.gradient(lambda V: ref.cross_entropy(V, x_l, P_l), between)
    np.testing.assert_allclose(weights(w), after, atol=1e-8)
    np.testing.assert_allclose(log_f.exp().numpy(), p, atol=1e-12)
    assert float(terms["labelled"].detach()) == pytest.approx(ref.cross_entropy(between, x_l, P_l))
