"""The examples of the documents run as scripts, and show what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def output_of(example: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / example],
        cwd=folder,
        env={**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_few_labels(tmp_path: Path) -> None:
    told = output_of("few_labels.py", tmp_path)
    right, alone = (
        float(re.search(pattern, told)[1])  # type: ignore[index]
        for pattern in (r"right: ([\d.]+)%", r"without unlabelled images: ([\d.]+)%")
    )
    assert right > alone
    found = re.search(r"(\d+) of the (\d+) wrong labels are among these 24", told)
    assert found is not None
    assert int(found[1]) >= 6
    for name in ("learning_speed", "posterior", "most_uncertain"):
        picture = (tmp_path / "few_labels" / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")


def test_frozen_features(tmp_path: Path) -> None:
    told = output_of("frozen_features.py", tmp_path)
    accuracy = {
        name.strip(): float(percent)
        for name, percent in re.findall(r"^(.+):\s+([\d.]+)%$", told, re.MULTILINE)
    }
    assert accuracy["features, SaaS"] > accuracy["features, labels alone"]
    assert accuracy["features, SaaS"] > accuracy["pixels, SaaS"]
    assert accuracy["saas label"] == pytest.approx(accuracy["features, SaaS"], abs=3)
    assert (tmp_path / "frozen_features" / "model" / "model.safetensors").exists()


def test_every_example_is_tested_and_named_in_the_documents() -> None:
    text = (EXAMPLES.parent / "estimator.md").read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f"test_{path.stem}" in globals()
        assert f"(examples/{path.name})" in text
