"""Devices and precisions, as far as a CPU can tell."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from command import Here, saas
from saas_ssl.algorithm.descent import Descent
from saas_ssl.algorithm.host import Host
from saas_ssl.algorithm.network import copied_state, unwrapped
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.phases import phase_one
from saas_ssl.algorithm.posterior import uniform_posterior
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.training.devices import CPU, Autocast, Place, find_place
from saas_ssl.training.pipeline import infer_posterior, train_classifier
from saas_ssl.training.problem import prepare
from saas_ssl.vision.augment import augmented_view, fit_preprocessing, named_recipe
from saas_ssl.vision.networks import build, named_factory
from small_problems import FEATURES, features, with_
from toy import last

META = torch.device("meta")


class EnoughError(Exception):
    pass


def images(n: int = 40) -> PartiallyLabelled:
    x = torch.randint(256, (n, 3, 8, 8), dtype=torch.uint8, generator=generator_at(0))
    y = torch.full((n,), -1)
    y[:12] = torch.arange(12) % 3
    return PartiallyLabelled(x, y, ["a", "b", "c"], [str(row) for row in range(n)])


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("gpu", "unknown device 'gpu': choose auto, cpu, cuda, cuda:1 or mps"),
        ("meta", "unknown device 'meta'"),
        ("cuda:x", "unknown device 'cuda:x'"),
        ("cuda", "there is no cuda device here"),
        ("cuda:7", "there is no cuda device here"),
        ("mps", "there is no mps device here"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_what_is_not_there_is_refused(device: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        find_place(device, "fp32", compiled=False)


@pytest.mark.skipif(
    torch.cuda.is_available() or torch.backends.mps.is_available(), reason="there is a GPU"
)
def test_without_a_gpu_auto_is_the_cpu() -> None:
    assert find_place("auto", "fp32", compiled=False) == CPU


def test_rows_stay_where_they_are_on_the_cpu() -> None:
    x = images().x
    assert CPU.resident(x) is x
    problem = prepare(features(), FEATURES, seed=0)
    assert problem.training.x is problem.data.x


def test_a_whole_step_on_another_device() -> None:
    """On the meta device nothing is computed, but a tensor of another device would be noticed."""
    data = images()
    preprocessing = fit_preprocessing(data.x).to(META)
    view = augmented_view(named_recipe("strong-cifar10"), preprocessing)
    place = Place(META)
    P_u = uniform_posterior(28, 3, 0.1, generator_at(0)).to(place.posterior_device)
    steps = list[Descent]()

    def draw(generator: torch.Generator) -> nn.Module:
        return build(named_factory("small_conv", 4), (3, 8, 8), 3, generator, META)

    def after_step(sgd: Descent) -> None:
        steps.append(sgd)
        raise EnoughError

    for update in ("alternate", "joint"):
        phase = phase_one(
            PartiallyLabelled(data.x.to(META), data.y, data.classes, data.ids),
            draw,
            view,
            seed=0,
            T=1,
            M=2,
            B=14,
            B_l=6,
            langevin=0.01,
            gradient_at="after",
            update=update,
            P_u=said_to_be_finite(P_u),
            changes=[1.0],
            host=Host(after_step=after_step),
        )
        with pytest.raises(EnoughError):
            next(phase)
    assert len(steps) == 2
    assert {p.device for p in steps[0].w.parameters()} == {META}
    assert steps[0].sum.shape == (28, 3)


def said_to_be_finite(P_u: Tensor) -> Tensor:
    """Checks of values are impossible on the meta device: a posterior that says it is finite."""

    class Finite(Tensor):
        def isfinite(self) -> Tensor:
            return torch.tensor([True])

    return P_u.as_subclass(Finite)


def test_images_and_networks_are_in_channels_last_order() -> None:
    data = images()
    network = build(named_factory("small_conv", 4), (3, 8, 8), 3, generator_at(0))
    weights = [p for p in network.parameters() if p.ndim == 4]
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in weights)
    seen = fit_preprocessing(data.x)(data.x[:5])
    assert seen.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precision_is_for_layers_only(precision: str) -> None:
    place = find_place("cpu", precision, compiled=False)  # type: ignore[arg-type]
    assert place.loss_scaling == (precision == "fp16")
    problem = prepare(features(), FEATURES, seed=0, place=place)
    network = problem.new_network(generator_at(0))
    assert isinstance(network, Autocast)
    rows = problem.preprocessing(problem.data.x[:8])
    wanted = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    assert network(rows).dtype == wanted
    seen = list[Tensor]()

    def after_step(sgd: Descent) -> None:
        seen.append(sgd.sum.clone())
        assert all(p.dtype == torch.float32 for p in sgd.w.parameters())
        assert all(p.grad is not None and bool(p.grad.any()) for p in sgd.w.parameters())

    outer = last(infer_posterior(problem, after_step=after_step))
    assert seen[0].dtype == torch.float32
    exact = last(infer_posterior(prepare(features(), FEATURES, seed=0)))
    assert list(outer.w) == list(exact.w)
    assert not torch.equal(outer.dP_u, exact.dP_u)
    torch.testing.assert_close(outer.dP_u, exact.dP_u, rtol=0.2, atol=0.2)
    epoch = last(train_classifier(problem, outer.P_u))
    assert epoch.loss < 1.0


def test_loss_scaling_finds_a_scale_that_does_not_overflow() -> None:
    network = nn.Linear(2, 3)
    sgd = Descent(network, 0.9, 0, torch.zeros(1), (), scaling=True)
    before = copied_state(network)
    sgd.descend(network(torch.full((4, 2), 1e36)).sum())  # overflows once it is scaled
    assert all(torch.equal(value, before[name]) for name, value in copied_state(network).items())
    scale = sgd.state()["scale"][0].item()
    sgd.set_rate(0.1)
    sgd.descend(network(torch.ones(4, 2)).sum())
    assert not torch.equal(network.weight, before["weight"])
    assert scale == 2**15


def test_names_of_weights_do_not_tell_how_a_network_is_wrapped() -> None:
    network = build(named_factory("mlp", 4), (2,), 3, generator_at(0))
    names = list(network.state_dict())
    cast = Autocast(network, "cpu", torch.bfloat16)
    compiled = torch.compile(cast, backend="eager")
    for wrapped in (cast, compiled):
        assert unwrapped(wrapped) is network  # type: ignore[arg-type]
        assert list(copied_state(wrapped)) == names  # type: ignore[arg-type]


def test_one_compiled_network_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = list[nn.Module]()

    def compile_eagerly(network: nn.Module) -> nn.Module:
        compiled.append(network)
        wrapped: nn.Module = REAL_COMPILE(network, backend="eager")  # type: ignore[assignment]
        return wrapped

    monkeypatch.setattr(torch, "compile", compile_eagerly)
    settings = with_(outer_iterations=3)
    problem = prepare(features(), settings, seed=0, place=Place(compiled=True))
    outers = list(infer_posterior(problem))
    plain = list(infer_posterior(prepare(features(), settings, seed=0)))
    assert len(compiled) == 1
    for one, other in zip(outers, plain, strict=True):
        torch.testing.assert_close(one.P_u, other.P_u)
        assert list(one.w) == list(other.w)


REAL_COMPILE = torch.compile


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")  # torch's own import
def test_real_compilation_gives_the_same_posterior() -> None:
    problem = prepare(features(), FEATURES, seed=0, place=Place(compiled=True))
    outers = list(infer_posterior(problem))
    plain = list(infer_posterior(prepare(features(), FEATURES, seed=0)))
    for one, other in zip(outers, plain, strict=True):
        torch.testing.assert_close(one.P_u, other.P_u, rtol=1e-3, atol=1e-3)


def test_the_command_in_lower_precision(tmp_path: Path, saas_here: Here) -> None:
    command = ["label", "digits:train", "--keep-labels", "50", "--unlabelled", "100", "--out", "r"]
    command += ["--image-size", "8", "--inner-epochs", "1", "--outer-iterations", "1"]
    command += ["--set", "classifier_epochs=1", "--set", "width=4"]
    done = saas(*command, "--precision", "bf16", "--device", "cpu", "--quiet", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    record = json.loads((tmp_path / "r" / "run.json").read_text())
    assert record["execution"]["precision"] == "bf16"
    for wrong, sentence in (
        (["--device", "cuda:99"], "there is no"),
        (["--precision", "fp8"], "precision: input should be 'fp32', 'bf16' or 'fp16', not 'fp8'"),
        (["--parallel", "rows"], "parallel: input should be 'trajectories' or 'data', not 'rows'"),
        (["--log", "wandb"], "log: input should be 'tensorboard', not 'wandb'"),
        (["--budget", "soon"], "'soon' is not a length of time"),
    ):
        refused = saas_here(*command[:-6], "--out", "no", *wrong, cwd=tmp_path)
        assert refused.code == 1
        assert sentence in refused.errors
        assert refused.errors.count("\n") == 1
        assert not (tmp_path / "no").exists()
