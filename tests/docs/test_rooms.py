"""The package is laid out as its documents and contracts say."""

import ast
import re
import tomllib
from importlib import import_module
from pathlib import Path

import saas_ssl
from saas_ssl.experiments.reproduce import EXPERIMENTS
from saas_ssl.methods import METHODS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "saas_ssl"
ROOMS = {path.name: path for path in PACKAGE.iterdir() if path.is_dir() and path.name[0] != "_"}
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]


def test_public_names_lead_to_what_type_checkers_see() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    seen = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and "saas_ssl" in node.module
        for alias in node.names
    }
    assert seen == {name: f"saas_ssl.{room}" for name, room in saas_ssl._HOME.items()}
    for name, module in seen.items():
        assert getattr(saas_ssl, name) is getattr(import_module(module), name)


def test_only_rooms_lie_at_the_top() -> None:
    files = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert files == {"__init__.py", "__main__.py", "py.typed"}
    for room in ROOMS.values():
        assert len(list(room.glob("*.py"))) > 2  # no room of one file


def test_each_room_says_what_it_is_for() -> None:
    for room in ROOMS.values():
        docstring = ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
        assert docstring is not None
        assert 3 <= len(docstring.splitlines()) <= 6


def test_the_table_of_rooms_and_the_layers_name_every_room() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert re.findall(r"^\| `(\w+)/` \|", text, flags=re.MULTILINE) == [
        name
        for layer in CONTRACTS[0]["layers"]
        for name in layer.split(" | ")
        if name != "__main__"
    ]
    # All that the drawings and decisions name is there.
    for path in re.findall(rf"\b((?:{'|'.join(ROOMS)})/\w+\.py)", text):
        assert (PACKAGE / path).exists()


def test_every_decision_is_short() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    decisions = text.partition("## Decisions")[2].partition("## Dependencies")[0].split("\n\n")
    for decision in decisions:
        assert len(decision.strip().splitlines()) <= 5


def test_contracts_of_independence_name_every_method_and_experiment() -> None:
    """One that is forgotten there would not be checked."""
    methods, experiments = (
        contract["modules"] for contract in CONTRACTS if contract["type"] == "independence"
    )
    assert methods == sorted(f"saas_ssl.methods.{name}" for name in METHODS)
    assert experiments == sorted(
        f"saas_ssl.experiments.{name.replace('-', '_')}" for name in EXPERIMENTS
    )


def test_tests_live_in_the_rooms_of_what_they_test() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        assert path.parent.name in {*ROOMS, "docs"}
