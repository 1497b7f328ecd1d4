"""Speed of a phase-one step and of the projection: `make bench`, about three minutes.

One JSON line per result. Times on a shared machine are noisy, so what is compared is measured
interleaved in the same run, and the ratio is the median over the rounds.
"""

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from PIL import Image, ImageEnhance
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from saas_ssl.algorithm.losses import cross_entropy, entropy, log_softmax
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.algorithm.phases import phase_one
from saas_ssl.algorithm.randomness import generator_at
from saas_ssl.algorithm.simplex import project
from saas_ssl.data.splits import keep_labels
from saas_ssl.vision.augment import augmented_view, fit_preprocessing, named_recipe
from saas_ssl.vision.networks import build, named_factory

B, STEPS, K, WIDTH, SHAPE = 100, 8, 10, 32, (3, 32, 32)
N_U, N_L = B * STEPS, 200


def emit(**result: object) -> None:
    print(json.dumps(result), flush=True)


def new_network(generator: torch.Generator) -> nn.Module:
    return build(named_factory("small_conv", WIDTH), SHAPE, K, generator)


def synthetic_images() -> PartiallyLabelled:
    n = N_U + N_L
    x = torch.randint(0, 256, (n, *SHAPE), generator=generator_at(0), dtype=torch.uint8)
    ids = [str(row) for row in range(n)]
    names = [str(k) for k in range(K)]
    data = PartiallyLabelled(x, torch.arange(n) % K, names, ids)
    return keep_labels(data, N_L, generator_at(1))


def timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Bare:
    """The same forwards, backwards and SGD steps on tensors that are ready."""

    def __init__(self) -> None:
        self.network = new_network(generator_at(2)).train()
        self.sgd = torch.optim.SGD(self.network.parameters(), 0.01, 0.9)
        x = torch.randn(B, *SHAPE, generator=generator_at(3))
        self.x = x.contiguous(memory_format=torch.channels_last)
        # Distinct targets, so that the gradients stay as large as in real training.
        self.P = torch.randn(B, K, generator=generator_at(4)).mul(3.0).softmax(dim=1)

    def half_step(self, x: Tensor, P: Tensor, beta: float) -> None:
        log_f = log_softmax(self.network(x))
        loss = cross_entropy(log_f, P) + (beta * entropy(log_f) if beta else 0.0)
        self.sgd.zero_grad(set_to_none=True)
        loss.backward()
        self.sgd.step()

    def epoch(self) -> None:
        for _ in range(STEPS):
            self.half_step(self.x, self.P, beta=1.0)
            self.half_step(self.x, self.P, beta=0.0)


class PilImages(Dataset[tuple[int, Tensor]]):
    """One image at a time, augmented with PIL: how most training scripts do it."""

    def __init__(self, x: Tensor) -> None:
        self.arrays = x.permute(0, 2, 3, 1).contiguous().numpy()

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, index: int) -> tuple[int, Tensor]:
        image = Image.fromarray(self.arrays[index])
        angle = random.uniform(-10, 10)  # noqa: S311
        shift = (random.randint(-4, 4), random.randint(-4, 4))  # noqa: S311
        image = image.rotate(angle, Image.Resampling.BILINEAR, translate=shift)
        if random.random() < 0.5:  # noqa: S311
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            image = enhance(image).enhance(random.uniform(0.6, 1.4))  # noqa: S311
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(32, 32, 3)
        return index, pixels.permute(2, 0, 1).float() / 255.0


class Naive(Bare):
    """The same step fed by DataLoaders, with the posterior's gradient by autograd."""

    def __init__(self, data: PartiallyLabelled, workers: int) -> None:
        super().__init__()
        self.network = self.network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self.sgd = torch.optim.SGD(self.network.parameters(), 0.01, 0.9)
        self.P_u = torch.full((N_U, K), 1 / K, requires_grad=True)
        self.unlabelled, self.labelled = (
            DataLoader(
                PilImages(data.x[rows]),
                batch_size=B,
                shuffle=True,
                num_workers=workers,
                persistent_workers=workers > 0,
            )
            for rows in (data.unlabelled_rows, data.labelled_rows)
        )

    def epoch(self) -> None:
        labelled = iter(self.labelled)
        for i, x_u in self.unlabelled:
            try:
                _, x_l = next(labelled)
            except StopIteration:
                labelled = iter(self.labelled)
                _, x_l = next(labelled)
            log_f = log_softmax(self.network(x_u))
            loss = -(log_f * self.P_u[i]).sum(dim=1).mean() + entropy(log_f)
            self.sgd.zero_grad(set_to_none=True)
            loss.backward()  # adds to the gradients of the weights and of the posterior
            self.sgd.step()
            self.half_step(x_l, self.P, beta=0.0)


def compare_steps(rounds: int) -> None:
    data = synthetic_images()
    view = augmented_view(named_recipe("cifar10"), fit_preprocessing(data.x))
    bare = Bare()

    def ours() -> None:
        for _ in phase_one(data, new_network, view, T=1, M=1, seed=0, B=B, B_l=B):
            pass

    rivals: dict[str, Callable[[], None]] = {
        "phase one": ours,
        "bare network": bare.epoch,
        "naive, DataLoader in the same process": Naive(data, 0).epoch,
        "naive, DataLoader with 2 workers": Naive(data, 2).epoch,
    }
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for n in range(rounds + 1):
        for name, work in rivals.items():
            elapsed = timed(work)
            if n:  # the first round warms up
                seconds[name].append(elapsed)
    passes = 2 * B * STEPS
    for name, values in seconds.items():
        ratios = [b / v for v, b in zip(values, seconds["bare network"], strict=True)]
        emit(
            benchmark="step",
            what=name,
            network=f"small_conv width {WIDTH}, 32x32x3, batch {B} + {B}, recipe cifar10",
            images_per_second=round(passes / statistics.median(values)),
            speed_relative_to_bare=round(statistics.median(ratios), 3),
            spread=[round(min(ratios), 3), round(max(ratios), 3)],
            rounds=rounds,
            threads=torch.get_num_threads(),
        )


def measure_projection(rows: int, columns: int) -> None:
    """Runs in its own process, so that the peak of memory is the projection's."""
    P = torch.randn(rows, columns, generator=generator_at(0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = [timed(lambda: void(project(P, 0.5 / columns))) for _ in range(3)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    emit(
        benchmark="projection",
        rows=rows,
        columns=columns,
        milliseconds=round(1000 * statistics.median(times), 1),
        matrix_megabytes=round(P.nbytes / 1e6, 1),
        peak_extra_megabytes=round(peak * 1024 / 1e6, 1),
        threads=torch.get_num_threads(),
    )


def void(_value: object) -> None:
    """Let go of a value."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--projection", type=int, nargs=2, metavar=("ROWS", "COLUMNS"))
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.projection:
        measure_projection(*arguments.projection)
        return
    for shape in (("46000", "10"), ("1000000", "100")):
        threads = ["--threads", str(arguments.threads)]
        subprocess.run([sys.executable, __file__, *threads, "--projection", *shape], check=True)
    compare_steps(arguments.rounds)


if __name__ == "__main__":
    main()
