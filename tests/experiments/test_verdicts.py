"""Verdicts follow from the numbers alone: made-up runs of every experiment get the right ones."""

from typing import Any

import pytest

from saas_ssl.experiments.experiment import Records
from saas_ssl.experiments.reproduce import EXPERIMENTS
from saas_ssl.experiments.verdicts import CLAIMS, UNDECIDED, as_markdown, effect, similar

SEEDS = range(5)
JITTER = (0.0, 0.004, -0.003, 0.002, -0.002)  # of the five runs


def runs(name: str, **means: float) -> Records:
    """Runs by arm whose one number is about its mean."""
    return {
        arm.replace("_", "-"): {seed: {name: mean + JITTER[seed] * (k + 1)} for seed in SEEDS}
        for k, (arm, mean) in enumerate(means.items())
    }


def errors(**means: float) -> Records:
    return runs("test_error", **means)


def labels(**means: float) -> Records:
    plain = runs("unlabelled_error", **means)
    return {
        arm: {s: {**run, "accuracy": [1 - run["unlabelled_error"]]} for s, run in seeds.items()}
        for arm, seeds in plain.items()
    }


def losses(*after_ten: float) -> Records:
    return {
        arm: {seed: {"loss": [9.0] * 9 + [value + JITTER[seed]], "wrong": 0.0} for seed in SEEDS}
        for arm, value in zip(("0", "0.25", "0.5", "0.75", "1"), after_ten, strict=True)
    }


def speeds(*by_moment: float) -> Records:
    def record(seed: int) -> dict[str, Any]:
        return {"loss": {str(10**m): [9.0, v + JITTER[seed], v] for m, v in enumerate(by_moment)}}

    return {"saas": {seed: record(seed) for seed in SEEDS}}


def counts(*errors: float) -> Records:
    arms = ("0", "100", "200", "400")
    return {
        arm: {seed: {"test_error": error + JITTER[seed]} for seed in SEEDS}
        for arm, error in zip(arms, errors, strict=True)
    }


def with_same_steps(few: float, many: float) -> Records:
    """More rows are better at the same T; at the same number of steps it is for these to say."""
    same = {"100-same-steps": few, "400-same-steps": many}
    more = {arm: {s: {"test_error": e + JITTER[s]} for s in SEEDS} for arm, e in same.items()}
    return {**counts(0.5, 0.4, 0.3, 0.2), **more}


def augmented(saas: float, saas_plain: float) -> Records:
    return errors(
        supervised_augmented=0.4, supervised_plain=0.5, saas_augmented=saas, saas_plain=saas_plain
    )


METHODS = ("vat", "stochastic_transformations", "temporal_ensembling", "gan_feature_matching")


def methods(saas: float, saas_vat: float, supervised: float) -> Records:
    named = {"saas": saas, "saas_vat": saas_vat, "supervised": supervised, "mean_teacher": 0.2}
    own = named | dict.fromkeys(METHODS, 0.2)
    return {arm: {s: {"test_error": e + JITTER[s]} for s in SEEDS} for arm, e in own.items()}


Case = tuple[str, Records, dict[str, str]]
HOLDS, NOT = "holds", "does not hold"
CASES: list[Case] = [
    ("corrupted-labels", losses(0.1, 0.5, 1.0, 1.5, 2.0), {"1": HOLDS}),
    ("corrupted-labels", losses(0.1, 0.5, 0.4, 1.5, 2.0), {"1": NOT}),
    ("threshold", labels(alpha_0=0.3, **{"alpha_0.05": 0.1}), {"2": HOLDS}),
    ("threshold", labels(alpha_0=0.1, **{"alpha_0.05": 0.3}), {"2": NOT}),
    ("threshold", labels(alpha_0=0.1, **{"alpha_0.05": 0.1}), {"2": UNDECIDED}),
    ("threshold", labels(**{"alpha_0.05": 0.1}, alpha_0=0.1), {"2": UNDECIDED}),
    ("unlabelled-count", counts(0.5, 0.4, 0.3, 0.2), {"3": HOLDS}),
    ("unlabelled-count", counts(0.5, 0.2, 0.3, 0.4), {"3": NOT}),
    ("unlabelled-count", with_same_steps(0.3, 0.2), {"3": HOLDS}),
    ("unlabelled-count", with_same_steps(0.2, 0.3), {"3": NOT}),
    ("label-speed", speeds(2.0, 1.0, 0.5), {"4": HOLDS}),
    ("label-speed", speeds(0.5, 1.0, 2.0), {"4": NOT}),
    ("label-speed", speeds(1.0, 2.0, 0.5), {"4": HOLDS}),
    ("langevin", labels(B_25=0.1, B_100=0.3, B_100_noise=0.12), {"5": HOLDS}),
    ("langevin", labels(B_25=0.1, B_100=0.3, B_100_noise=0.28), {"5": NOT}),
    ("langevin", labels(B_25=0.1, B_100=0.3, B_100_noise=0.2), {"5": UNDECIDED}),
    ("langevin", labels(B_25=0.3, B_100=0.1, B_100_noise=0.1), {"5": NOT}),
    ("no-augmentation", augmented(saas=0.1, saas_plain=0.3), {"6": HOLDS}),
    ("no-augmentation", augmented(saas=0.3, saas_plain=0.1), {"6": NOT}),
    ("resnet-table", errors(supervised=0.3, saas=0.1), {"7": HOLDS}),
    ("conv-large-table", errors(supervised=0.1, saas=0.3), {"7": NOT}),
    (
        "trivial-posterior",
        errors(supervised=0.3, trivial=0.3, saas=0.1, saas_from_trivial=0.1),
        {"8": HOLDS},
    ),
    (
        "trivial-posterior",
        errors(supervised=0.3, trivial=0.2, saas=0.1, saas_from_trivial=0.1),
        {"8": NOT},
    ),
    (
        "trivial-posterior",
        errors(supervised=0.3, trivial=0.3, saas=0.3, saas_from_trivial=0.3),
        {"8": UNDECIDED},
    ),
    ("sota-table", methods(saas=0.2, saas_vat=0.1, supervised=0.3), {"7": HOLDS}),
    ("sota-table", methods(saas=0.3, saas_vat=0.4, supervised=0.2), {"7": NOT}),
    ("init", labels(resample=0.1, reset=0.1), {"footnote 2": HOLDS}),
    ("init", labels(resample=0.1, reset=0.2), {"footnote 2": NOT}),
    ("init", labels(resample=0.1, reset=0.11), {"footnote 2": UNDECIDED}),
]


@pytest.mark.parametrize(
    ("name", "records", "expected"),
    CASES,
    ids=[f"{c[0]}-{next(iter(c[2].values()))}" for c in CASES],
)
def test_made_up_runs_get_the_right_verdict(
    name: str, records: Records, expected: dict[str, str]
) -> None:
    found = {v.claim: v.answer for v in EXPERIMENTS[name].verdicts(records)}
    assert {claim: found[claim] for claim in expected} == expected


def test_one_run_decides_nothing() -> None:
    for name, records, _ in CASES:
        single = {arm: {0: seeds[0]} for arm, seeds in records.items()}
        for verdict in EXPERIMENTS[name].verdicts(single):
            assert verdict.answer == UNDECIDED
            assert "1 run)" in as_markdown([verdict])


def test_every_claim_has_an_experiment() -> None:
    judged = {v.claim for name, records, _ in CASES for v in EXPERIMENTS[name].verdicts(records)}
    assert judged == set(CLAIMS)
    assert {str(n) for n in range(1, 10)} <= judged
    assert {name for name, _, _ in CASES} == set(EXPERIMENTS)


def test_vat_is_judged_by_what_it_adds_to_saas() -> None:
    for with_vat, answer in ((0.1, HOLDS), (0.3, NOT)):
        found = EXPERIMENTS["sota-table"].verdicts(methods(0.2, with_vat, 0.3))
        jittered = {v.claim: v for v in found}["9"]
        assert jittered.effects[0].estimate.mean == pytest.approx(100 * (0.2 - with_vat))
        assert jittered.answer == answer


def test_numbers_in_words_and_json() -> None:
    verdict = similar("footnote 2", effect("less", [0.5, 0.25, 0.75]), margin=1.0)
    assert verdict.answer == UNDECIDED
    (own,) = verdict.as_json()["effects"]
    assert own["mean"] == 0.5
    assert own["size"] == pytest.approx(2.0)
    assert own["low"] < 0.25
    assert "+0.50 points (95 % interval -0.12 to +1.12, 3 runs): less" in as_markdown([verdict])
