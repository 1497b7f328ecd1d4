"""The paper's protocol with its real networks: one shortened outer iteration, and the forecast."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from processes import LIMIT, started
from saas_ssl.algorithm.network import copied_state
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.data.splits import keep_labels
from saas_ssl.training.pipeline import infer_posterior, train_classifier, train_supervised
from saas_ssl.training.presets import PRESETS, named_preset
from saas_ssl.training.problem import prepare
from samples import cifar_files, write

PAPER = [name for name in PRESETS if name.startswith("paper-") or name == "authors-code"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
def test_presets_run_a_shortened_outer_iteration_with_the_real_networks(name: str) -> None:
    x = torch.randint(0, 256, (60, 3, 32, 32), generator=generator_at(0), dtype=torch.uint8)
    names = [str(n) for n in range(60)]
    rows = PartiallyLabelled(x, torch.arange(60) % 10, names[:10], names)
    data = keep_labels(rows, 20, generator_at(0))
    settings = named_preset(name)
    problem = prepare(data, settings.changed(inner_epochs=1, batch_size=20), seed=0)
    first = problem.new_network(generator_at(problem.seed, "weights", 0))
    weights = sum(w.numel() for w in first.parameters())
    assert weights == pytest.approx(11.2e6 if settings.network == "resnet18" else 3.1e6, rel=0.02)
    outer = next(infer_posterior(problem))
    assert outer.P_u.isfinite().all()
    assert outer.P_u.min() >= 0.05 - 1e-6
    assert outer.dP_u.abs().sum() > 0
    before = copied_state(first)
    assert any(not torch.equal(outer.w[w], before[w]) for w in before if w.endswith("weight"))
    for epoch in (next(train_classifier(problem, outer.P_u)), next(train_supervised(problem))):
        assert 0 < epoch.loss < 10  # the rate of 0.1 does not make it diverge
        assert epoch.rate == 0.1


def test_there_are_five_such_presets() -> None:
    assert sorted(PAPER) == [
        "authors-code",
        "paper-cifar10",
        "paper-cifar10-convlarge",
        "paper-svhn",
        "paper-svhn-convlarge",
    ]


@pytest.mark.slow
def test_the_cost_is_said_before_it_starts(tmp_path: Path) -> None:
    """Files in the format of CIFAR-10, a tenth of its size; stopped as soon as it has begun."""
    files, _, _ = cifar_files("bin", rows=1000)
    for name, data in files.items():
        write(tmp_path / "cifar" / name, data)
    command = ["reproduce", "resnet-table", "--scale", "paper", "--data", "cifar10:cifar"]
    with started(*command, "--out", "out", cwd=tmp_path) as process:
        assert process.stdout is not None
        lines = list[str]()
        while not lines or not lines[-1].startswith("cells: 6"):
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        # 135 outer iterations of 40 epochs over 1,000 + 10 x 100 rows, 351 epochs of the same, and
        # 351 epochs over 3,600 + 36 x 100 labelled rows: three times.
        passes = 3 * (135 * 40 * 2000 + 351 * 2000 + 351 * 7200)
        (forecast,) = [line for line in lines if line.startswith("6 runs")]
        assert f"6 runs: at least {passes:,} image passes through resnet18, at least" in forecast
        assert "days on this machine" in forecast
        time.sleep(1)
        os.kill(process.pid, signal.SIGINT)
        process.wait(LIMIT)
        assert process.returncode == 130
