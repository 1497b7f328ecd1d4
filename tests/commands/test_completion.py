"""Completion by a real shell, installed as a user does it: of commands and of options."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash on this machine")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which somebody has run `saas --install-completion`."""
    home = tmp_path_factory.mktemp("home")
    done = in_bash(home, "saas --install-completion; echo $?")
    assert done.splitlines()[-1] == "0", done
    return home


def in_bash(home: Path, script: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(BASH), "--norc", "-c", script],
        env={**os.environ, "HOME": str(home), "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def completed(home: Path, *words: str) -> list[str]:
    """What bash offers after the last of these words and a press of Tab."""
    line = " ".join(f"'{word}'" for word in words)
    return in_bash(
        home,
        f"source ~/.bashrc; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
        "_saas_completion saas; printf '%s\\n' \"${COMPREPLY[@]}\"",
    ).split()


def test_it_completes_commands(home: Path) -> None:
    assert completed(home, "saas", "l") == ["label"]
    assert completed(home, "saas", "re") == ["review", "reproduce"]
    everything = completed(home, "saas", "")
    assert everything[:3] == ["demo", "label", "status"]
    assert len(everything) == 8


def test_it_completes_options(home: Path) -> None:
    assert completed(home, "saas", "label", "photos", "--inner") == [
        "--inner-epochs",
        "--inner-schedule",
    ]
    assert "--format" in completed(home, "saas", "export", "run", "--")
