"""The command as a user calls it: a real process."""

import csv
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
SAAS = str(Path(sys.executable).with_name("saas"))

QUICK = ["--inner-epochs", "4", "--outer-iterations", "2", "--set", "classifier_epochs=4"]
QUICK += ["--set", "width=4", "--augmentation", "translate"]


def saas(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SAAS, *arguments], cwd=cwd, capture_output=True, text=True, timeout=600, check=False
    )


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
