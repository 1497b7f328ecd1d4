"""The command as a user calls it: a real process, or the same call within this one."""

import csv
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import Ended
from saas_ssl.commands.app import main

README = Path(__file__).parents[1] / "README.md"
SAAS = str(Path(sys.executable).with_name("saas"))

QUICK = ["--inner-epochs", "4", "--outer-iterations", "2", "--set", "classifier_epochs=4"]
QUICK += ["--set", "width=4", "--augmentation", "translate"]

Here = Callable[..., Ended]


def saas(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SAAS, *arguments], cwd=cwd, capture_output=True, text=True, timeout=600, check=False
    )


def called_here(
    *arguments: str,
    cwd: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ended:
    """All that the shell would call, without the seconds that another process takes to start."""
    monkeypatch.chdir(cwd)
    monkeypatch.setattr(sys, "argv", ["saas", *arguments])
    code: object = 0
    capsys.readouterr()
    try:
        main()
    except SystemExit as end:
        code = end.code
    out, errors = capsys.readouterr()
    if isinstance(code, str):  # what the interpreter makes of it
        return Ended(1, out, f"{errors}{code}\n")
    assert code is None or isinstance(code, int)
    return Ended(code or 0, out, errors)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
