"""The preset `small` is what its tuning found, the document says the same, and runs used it."""

import json
import re
import statistics
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import tuning
from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.methods import METHODS
from saas_ssl.methods.fitting import as_told
from saas_ssl.methods.presets import small

ROOT = Path(__file__).parents[2]
KINDS = {
    "digits": (1, tuning.GREY, tuning.GREY_START, 3),
    "colour": (3, tuning.COLOUR, tuning.COLOUR_START, 1),
}
"""Name: channels, candidates, where they start from, labelled sets."""


@cache
def mean_errors(kind: str, method: str) -> list[float]:
    """Of each candidate, on the validation rows."""
    lines = (ROOT / "results" / "tuning" / f"{kind}.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["method"] == method]
    _, candidates, _, sets = KINDS[kind]
    errors = [
        [row["error"] for row in rows if row["candidate"] == number]
        for number in range(len(candidates[method]))
    ]
    assert [len(runs) for runs in errors] == [sets] * len(errors)
    return [statistics.mean(runs) for runs in errors]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_the_preset_is_the_candidate_with_the_lowest_validation_error(
    kind: str, method: str
) -> None:
    channels, candidates, start, _ = KINDS[kind]
    errors = [round(error, 9) for error in mean_errors(kind, method)]  # of equal ones the first
    best = candidates[method][errors.index(min(errors))]
    y = torch.tensor([0, 1, -1, -1])
    x = torch.zeros(4, channels, 16, 16, dtype=torch.uint8)
    data = PartiallyLabelled(x, y, ("a", "b"), ids="0123")

    def chosen(given: Mapping[str, Any]) -> object:
        return small(method, data, {"passes": 1000.0}, given)

    assert chosen({}) == chosen({**start.get(method, {}), **best})


@pytest.mark.parametrize("kind", KINDS)
def test_the_document_has_the_errors_of_all_candidates(kind: str) -> None:
    text = (ROOT / "docs" / "comparison.md").read_text()
    for method in METHODS:
        percent = [f"{100 * error:.1f}" for error in mean_errors(kind, method)]
        rows = [
            line.replace("*", "")
            for line in text.splitlines()
            if line.startswith(f"| `{method}` |") and "**" in line
        ]
        assert percent in [re.findall(r": (\d+\.\d)(?:;| \|)", row) for row in rows]


IMAGES = {"idx:": (1, 28, 28), "digits": (1, 16, 16), "cifar10-jpeg/train": (3, 32, 32)}
"""How the name of published data begins: the shape of its images."""


@pytest.mark.parametrize(
    "path", sorted((ROOT / "results").glob("*/results.json")), ids=lambda path: path.parent.name
)
def test_published_runs_have_the_settings_of_the_preset(path: Path) -> None:
    record = json.loads(path.read_text())
    request, budget = record["conditions"]["request"], record["conditions"]["budget"]
    labelled, unlabelled = request["keep_labels"], request["unlabelled"] or 1297
    shape = next(shape for name, shape in IMAGES.items() if request["data"].startswith(name))
    y = torch.full((labelled + unlabelled,), -1)
    y[:labelled] = torch.arange(labelled) % 10
    x = torch.zeros(len(y), *shape, dtype=torch.uint8)
    data = PartiallyLabelled(x, y, "0123456789", range(len(y)))  # type: ignore[arg-type]
    for cell in record["cells"]:
        preset = small(cell["method"], data, budget, {})
        # A setting that is newer than the run had its default.
        then = type(preset).model_validate(cell["settings"])
        assert as_told(then) == as_told(preset)
