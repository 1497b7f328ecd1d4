"""A descent that is stopped after any step goes on as if nothing had happened, bit for bit."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from safetensors.torch import load
from torch import Generator, Tensor, nn

from saas_ssl.algorithm.descent import Descent
from saas_ssl.algorithm.host import ALONE, Host
from saas_ssl.algorithm.network import copied_state
from saas_ssl.algorithm.phases import Epoch, Outer, phase_one, phase_two
from saas_ssl.algorithm.randomness import generator_at, global_draws_from
from saas_ssl.algorithm.schedules import SCHEDULES, fixed_length
from saas_ssl.runs.checkpoints import to_bytes
from saas_ssl.vision.networks import draw_weights_
from toy import blobs

STEPS, T, M, EPOCHS = 4, 2, 2, 3  # of an epoch, of an inner loop, and in all
DATA, _ = blobs(n=52)
P_u0 = torch.full((40, 3), 1 / 3, dtype=torch.float64)


def new_network(generator: Generator) -> nn.Module:
    """A network with running statistics, and with draws from torch's global state."""
    with global_draws_from(generator):
        layers = nn.Linear(2, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 3)
    return draw_weights_(nn.Sequential(*layers).double(), generator)


def jittered(x: Tensor, generator: Generator) -> Tensor:
    """A view that draws."""
    return x + 0.1 * torch.randn(x.shape, generator=generator, dtype=x.dtype)


class StoppedError(Exception):
    pass


@dataclass
class Watch:
    """Counts steps, and stops after one of them with the state as a checkpoint holds it."""

    stop: int = 0  # 0: never
    steps: int = 0
    state: dict[str, Tensor] | None = None
    scale: list[float] | None = None

    def __call__(self, sgd: Descent) -> None:
        self.steps += 1
        if "scale" in (state := sgd.state()):
            self.scale = state["scale"].tolist()
        if self.steps == self.stop:
            self.state = through_bytes(state)
            raise StoppedError


def through_bytes(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """As another process reads it."""
    return load(to_bytes(state))


def outers(host: Host = ALONE, seen: list[Outer] | None = None, **how: Any) -> Iterator[Outer]:
    """Phase one with all that has a state, after the outer iterations that were seen."""
    seen = seen or []
    settings: dict[str, Any] = {"eta_w": 0.1, "eta_P": 0.5, "alpha": 0.1, "langevin": 1e-3}
    settings |= {"schedule": SCHEDULES["triangular"], **how}
    return phase_one(
        DATA,
        new_network,
        jittered,
        seed=7,
        T=T,
        M=M,
        B=10,
        B_l=5,
        P_u=seen[-1].P_u if seen else P_u0,
        changes=[outer.changed for outer in seen],
        host=host,
        **settings,
    )


def epochs(host: Host = ALONE, scores: list[float] | None = None, **how: Any) -> Iterator[Epoch]:
    """Phase two with all that has a state, after the epochs that had these scores."""
    return phase_two(
        DATA,
        jittered(P_u0, generator_at(0, "labels")).softmax(dim=1),
        new_network,
        jittered,
        seed=3,
        rate=fixed_length(0.1, EPOCHS, SCHEDULES["triangular"]),
        weight_decay=0.01,
        B=10,
        B_l=5,
        scores=scores or [],
        host=host,
        **how,
    )


def values(outer: Outer) -> dict[str, Tensor]:
    """All that an outer iteration tells."""
    numbers = [outer.m, outer.cumulative_loss, outer.changed]
    return {
        "numbers": torch.tensor(numbers, dtype=torch.float64),
        "P_u": outer.P_u,
        "dP_u": outer.dP_u,
        **outer.w,
    }


def told(epoch: Epoch) -> dict[str, Tensor]:
    """All that an epoch tells, as it is now."""
    numbers = [epoch.n, epoch.rate, epoch.loss, epoch.score]
    return {"numbers": torch.tensor(numbers, dtype=torch.float64), **copied_state(epoch.w)}


def assert_same(found: list[dict[str, Tensor]], expected: list[dict[str, Tensor]]) -> None:
    """Bit for bit."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            assert torch.equal(ours[name], value), name


def interrupted(items: Callable[[Host], Iterator[Any]], seen: list[Any], watch: Watch) -> None:
    """Ask for items until the watch stops them."""
    try:
        for item in items(Host(after_step=watch)):
            seen.append(item if isinstance(item, Outer) else (item.score, told(item)))
    except StoppedError:
        pass
    assert watch.state is not None
    torch.manual_seed(watch.stop)  # another process has drawn other numbers


VARIANTS: list[dict[str, Any]] = [{}, {"weights": "reset", "update": "joint"}]
VARIANTS += [{"gradient_at": "after", "momentum": 0.0}]


@pytest.mark.parametrize("how", VARIANTS, ids=["paper", "joint", "after"])
def test_phase_one_goes_on_after_any_step(how: dict[str, Any]) -> None:
    whole = list(map(values, outers(**how)))
    assert len(whole) == M
    for stop in range(1, M * T * STEPS + 1):
        seen, watch = list[Outer](), Watch(stop)
        interrupted(lambda host: outers(host, **how), seen, watch)
        assert len(seen) == (stop - 1) // (T * STEPS)
        rest, after = list[Outer](), Watch()
        rest.extend(outers(Host(after_step=after, inside=watch.state), seen, **how))
        assert after.steps == M * T * STEPS - stop  # nothing is done twice
        assert_same([*map(values, seen), *map(values, rest)], whole)


def test_phase_two_goes_on_after_any_step() -> None:
    whole = list(map(told, epochs()))
    assert len(whole) == EPOCHS
    for stop in range(1, EPOCHS * STEPS + 1):
        seen, watch = list[tuple[float, dict[str, Tensor]]](), Watch(stop)
        interrupted(epochs, seen, watch)
        assert len(seen) == (stop - 1) // STEPS
        after = Watch()
        host = Host(after_step=after, inside=watch.state)
        rest = list(map(told, epochs(host, [score for score, _ in seen])))
        assert after.steps == EPOCHS * STEPS - stop
        assert_same([*(epoch for _, epoch in seen), *rest], whole)


def test_phase_two_goes_on_between_epochs() -> None:
    whole, scores = list(map(told, epochs())), list[float]()
    for n, epoch in enumerate(epochs()):
        state = through_bytes(epoch.sgd.state())
        scores.append(epoch.score)
        torch.manual_seed(n)
        rest = list(map(told, epochs(Host(inside=state), scores)))
        assert_same(rest, whole[n + 1 :])


def test_the_global_draws_of_the_caller_are_left_alone() -> None:
    watch = Watch(3)
    interrupted(outers, [], watch)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    next(outers(Host(inside=watch.state)))
    assert torch.equal(torch.rand(3), expected)


def test_loss_scaling_goes_on_where_it_was() -> None:
    scaled = Watch()
    whole = list(map(values, outers(Host(after_step=scaled, loss_scaling=True))))
    # Half-steps, without a jump: two for each step of the last inner loop.
    assert scaled.scale == [2.0**16, 2 * T * STEPS]
    for stop in (1, T * STEPS + 3):
        seen, watch, after = list[Outer](), Watch(stop), Watch()
        interrupted(lambda host: outers(replace(host, loss_scaling=True)), seen, watch)
        host = Host(after_step=after, loss_scaling=True, inside=watch.state)
        rest = list(outers(host, seen))
        assert_same([*map(values, seen), *map(values, rest)], whole)
        assert after.scale == scaled.scale


def a_descent(n: int = 4, scaling: bool = False) -> Descent:
    network = new_network(generator_at(n, "network")).train()
    draws = (generator_at(n, "views"), generator_at(n, "noise"))
    sum_ = torch.full((3,), float(n), dtype=torch.float64)
    sgd = Descent(network, 0.9, n, sum_, draws, weight_decay=0.01, scaling=scaling)
    sgd.set_rate(0.1)
    return sgd


def walked(sgd: Descent, steps: int = 3) -> Descent:
    """Some steps, each of which changes everything that has a state."""
    for _ in range(steps):
        x = torch.rand(10, 2, generator=sgd.draws[0], dtype=torch.float64)
        sgd.descend(sgd.w(x).square().mean())
        sgd.sum += torch.rand(3, generator=sgd.draws[1], dtype=torch.float64)
        sgd.counted()
    return sgd


def test_a_scale_that_overflowed_comes_back() -> None:
    sgd = walked(a_descent(scaling=True))
    before = copied_state(sgd.w)
    sgd.descend(sum((w.sum() for w in sgd.w.parameters()), torch.zeros(())) * torch.inf)
    assert all(torch.equal(before[name], value) for name, value in copied_state(sgd.w).items())
    walked(sgd, steps=2)
    again = a_descent(scaling=True)
    again.restore(through_bytes(sgd.state()))
    # Half of what it was, and two steps since.
    assert again.state()["scale"].tolist() == [2.0**15, 2.0]
    torch.manual_seed(0)
    ours = through_bytes(walked(again).state())
    torch.manual_seed(0)
    assert_same([ours], [through_bytes(walked(sgd).state())])
    assert ours["scale"].tolist() == [2.0**15, 5.0]


def test_a_restored_state_is_the_state() -> None:
    state = through_bytes(walked(a_descent()).state())
    again = a_descent()
    again.restore(state)
    assert_same([through_bytes(again.state())], [state])
    assert again.t == 3
    again.begin(5)
    assert (again.n, again.t) == (5, 0)
    assert not again.sum.any()


def test_a_state_is_not_changed_by_what_goes_on_from_it() -> None:
    state = through_bytes(walked(a_descent()).state())
    kept = {name: value.clone() for name, value in state.items()}
    again = a_descent()
    again.restore(state)
    walked(again)
    assert_same([state], [kept])


def test_a_state_of_another_loop_is_ignored() -> None:
    strange = through_bytes(walked(a_descent(5)).state())
    for state in (strange, None):
        sgd = walked(a_descent(4))
        before = through_bytes(sgd.state())
        sgd.restore(state)
        assert_same([through_bytes(sgd.state())], [before])
    whole = list(map(values, outers()))
    assert_same(list(map(values, outers(Host(inside=strange)))), whole)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_are_those_of_torch(momentum: float, weight_decay: float) -> None:
    """Bit for bit; a weight without a gradient, now or ever, is left alone."""
    networks = [new_network(generator_at(7)).eval() for _ in range(2)]
    for w in networks:
        w.register_parameter("unused", nn.Parameter(torch.ones(2)))
    ours = Descent(networks[0], momentum, 0, torch.zeros(()), (), weight_decay)
    theirs = torch.optim.SGD(networks[1].parameters(), 0.0, momentum, weight_decay=weight_decay)
    for step in range(5):
        x = torch.randn(6, 2, generator=generator_at(8, step), dtype=torch.float64)
        eta = 0.1 / (step + 1)
        outputs = [w(x) if step else w.get_submodule("0")(x) for w in networks]
        losses = [output.square().mean() for output in outputs]
        ours.set_rate(eta)
        ours.descend(losses[0])
        theirs.param_groups[0]["lr"] = eta
        theirs.zero_grad()
        losses[1].backward()
        theirs.step()
        for mine, own in zip(*(w.parameters() for w in networks), strict=True):
            assert torch.equal(mine, own)
    fresh = new_network(generator_at(7))
    assert not any(map(torch.equal, networks[0].parameters(), fresh.parameters()))
