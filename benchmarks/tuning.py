"""How the preset `small` was chosen: as many candidates, passes and label sets for every method.

    python benchmarks/tuning.py --workers 2 --out digits.jsonl
    python benchmarks/tuning.py --colour cifar10-jpeg/train.parquet --seeds 1 --passes 200000 ...

Grey images: 50 labels of the 1,347 training digits, 300 of which are kept for validation. Colour
images: 4,000 labels and 16,000 unlabelled rows of the training part of CIFAR-10, 2,000 others for
validation. Test rows are not used. One JSON line per run; runs that are in the file already are not
repeated.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from saas_ssl import build, error_rate, generator_at, hold_out, keep_labels, named_factory, read
from saas_ssl.methods import METHODS
from saas_ssl.methods.presets import small
from saas_ssl.sources.digits import read_digits, split_digits

WIDTH = 8

Candidate = dict[str, Any]
Result = dict[str, Any]
# What the candidates change, where the preset has moved on:
GREY_START: dict[str, Candidate] = {
    "supervised": {"view": "weak", "weight_decay": 1e-4},
    "vat": {"relative_epsilon": 0.1},
    "fixmatch": {"threshold": 0.95},
}
COLOUR_START: dict[str, Candidate] = {
    "saas": {"labelled_batch_size": 25},
    "gan_feature_matching": {"adversarial_weight": 1.0},
    "fixmatch": {"labelled_batch": 25},
    "freematch": {"labelled_batch": 25},
}
STRONG = {"view": "strong"}
GREY: dict[str, list[Candidate]] = {
    "supervised": [
        {"view": "weak"},
        STRONG,
        STRONG | {"weight_decay": 5e-4},
        STRONG | {"lr": 0.03},
        STRONG | {"lr": 0.2},
        STRONG | {"labelled_batch": 50},
    ],
    "saas": [
        {},
        {"labelled_batch_size": 50},
        {"classifier_weight_decay": 5e-4},
        {"posterior_lr": 2.5},
        {"classifier_epochs": 32},
        {"weight_lr": 0.2},
    ],
    # Twelve, after the first six had all been far behind SaaS alone: VAT does not go with strong
    # views, as its own candidates show.
    "saas_vat": [
        {"classifier_augmentation": view, "smoothness": smoothness, "relative_epsilon": epsilon}
        for view in ("strong", "same")
        for smoothness in (1.0, 0.3)
        for epsilon in (0.05, 0.1, 0.2)
    ],
    "vat": [
        {"relative_epsilon": 0.05},
        {"relative_epsilon": 0.1},
        {"relative_epsilon": 0.2},
        {"relative_epsilon": 0.1, "lr": 0.03},
        {"relative_epsilon": 0.1} | STRONG,
        {"relative_epsilon": 0.2} | STRONG,
    ],
    "stochastic_transformations": [
        {"views": 5, "stability": 0.3},
        {"views": 5, "stability": 1.0},
        {"views": 3, "stability": 1.0},
        {"views": 3, "stability": 3.0},
        {"views": 3, "stability": 1.0} | STRONG,
        {"views": 3, "stability": 0.3} | STRONG,
    ],
    "temporal_ensembling": [
        {"consistency": 10.0},
        {"consistency": 30.0},
        {"consistency": 100.0},
        {"consistency": 10.0} | STRONG,
        {"consistency": 30.0} | STRONG,
        {"consistency": 100.0} | STRONG,
    ],
    "pi_model": [
        {"consistency": 10.0},
        {"consistency": 30.0},
        {"consistency": 100.0},
        {"consistency": 3.0} | STRONG,
        {"consistency": 10.0} | STRONG,
        {"consistency": 30.0} | STRONG,
    ],
    "mean_teacher": [
        {"consistency": 10.0},
        {"consistency": 30.0},
        {"consistency": 100.0},
        {"consistency": 10.0} | STRONG,
        {"consistency": 30.0} | STRONG,
        {"consistency": 100.0} | STRONG,
    ],
    "gan_feature_matching": [
        {"lr": 3e-3},
        {"lr": 1e-3},
        {"lr": 1e-2},
        {"lr": 3e-3, "adversarial_weight": 0.3},
        {"lr": 3e-3} | STRONG,
        {"lr": 3e-3, "adversarial_weight": 0.3} | STRONG,
    ],
    "pseudo_label": [
        {"alpha_f": 1.0},
        {"alpha_f": 3.0},
        {"alpha_f": 1.0, "threshold": 0.95},
        {"alpha_f": 1.0} | STRONG,
        {"alpha_f": 3.0} | STRONG,
        {"alpha_f": 1.0, "threshold": 0.95} | STRONG,
    ],
    "fixmatch": [
        {},
        {"threshold": 0.8},
        {"unlabelled_batch": 100},
        {"lr": 0.03},
        STRONG,
        STRONG | {"threshold": 0.8},
    ],
    "freematch": [
        {},
        {"fairness": 0.01},
        {"unlabelled_batch": 100},
        {"lr": 0.03},
        STRONG,
        STRONG | {"decay": 0.95},
    ],
}
COLOUR: dict[str, list[Candidate]] = {
    "supervised": [
        {"view": "weak"},
        {"view": "strong"},
        {"view": "weak", "labelled_batch": 50},
    ],
    "saas": [{}, {"classifier_epochs": 19}, {"labelled_batch_size": 50}],
    "saas_vat": [{"relative_epsilon": epsilon} for epsilon in (0.05, 0.1, 0.2)],
    "vat": [{"relative_epsilon": epsilon} for epsilon in (0.05, 0.1, 0.2)],
    "stochastic_transformations": [{"stability": weight} for weight in (0.1, 0.3, 1.0)],
    "temporal_ensembling": [{"consistency": weight} for weight in (3.0, 10.0, 30.0)],
    "pi_model": [{"consistency": weight} for weight in (10.0, 30.0, 100.0)],
    "mean_teacher": [{"consistency": weight} for weight in (10.0, 30.0, 100.0)],
    "gan_feature_matching": [
        {"lr": 0.01},
        {"lr": 0.003},
        {"lr": 0.01, "adversarial_weight": 0.3},
    ],
    "pseudo_label": [
        {"alpha_f": 1.0},
        {"alpha_f": 1.0, "threshold": 0.95},
        {"alpha_f": 0.3},
    ],
    "fixmatch": [
        {"threshold": 0.8},
        {"threshold": 0.95},
        {"threshold": 0.8, "labelled_batch": 50},
    ],
    "freematch": [
        {"fairness": 0.001},
        {"fairness": 0.01},
        {"fairness": 0.001, "labelled_batch": 50},
    ],
}


def run(method: str, candidate: int, seed: int, passes: float, colour: str | None) -> Result:
    """The validation error of one candidate on one label set."""
    torch.set_num_threads(1)
    generator = generator_at(seed, "tuning labels")
    if colour is None:
        training, _ = split_digits(read_digits())
        rest, validation = hold_out(training, 300, generator_at(0, "tuning"))
        data, start, all_ = keep_labels(rest, 50, generator), GREY_START, GREY
    else:
        rest, validation = hold_out(read(colour), 2000, generator_at(0, "tuning"))
        data, start, all_ = keep_labels(rest, 4000, generator, 16_000), COLOUR_START, COLOUR
    factory, shape = named_factory("small_conv", WIDTH), tuple(data.x.shape[1:])
    given = {**start.get(method, {}), **all_[method][candidate]}
    settings = small(method, data, {"passes": passes}, given)
    trained = METHODS[method].train(
        data,
        lambda g: build(factory, shape, data.n_classes, g),
        settings,
        generator_at(seed, "tuning", method),
    )
    error = error_rate(trained.network, trained.preprocessing, validation)
    return {"method": method, "candidate": candidate, "seed": seed, "error": error}


def missing(
    all_: dict[str, list[Candidate]], done: list[Result], seeds: int
) -> Iterator[tuple[str, int, int]]:
    have = {(row["method"], row["candidate"], row["seed"]) for row in done}
    for seed in range(seeds):
        for method, candidates in all_.items():
            for number in range(len(candidates)):
                if (method, number, seed) not in have:
                    yield method, number, seed


def summary(all_: dict[str, list[Candidate]], rows: list[Result]) -> Iterator[Result]:
    for method, candidates in all_.items():
        for number, candidate in enumerate(candidates):
            errors = [
                row["error"]
                for row in rows
                if (row["method"], row["candidate"]) == (method, number)
            ]
            mean = round(statistics.mean(errors), 4) if errors else None
            yield {"method": method, "candidate": candidate, "mean": mean, "runs": len(errors)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--passes", type=float, default=75_000)
    parser.add_argument("--colour", help="CIFAR-10, labelled; without it: digits")
    arguments = parser.parse_args()
    out: Path = arguments.out
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    all_ = GREY if arguments.colour is None else COLOUR
    with ProcessPoolExecutor(arguments.workers, get_context("spawn")) as pool:
        jobs = [
            pool.submit(run, *cell, arguments.passes, arguments.colour)
            for cell in missing(all_, rows, arguments.seeds)
        ]
        for job in as_completed(jobs):
            rows.append(job.result())
            with out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    for line in summary(all_, rows):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
