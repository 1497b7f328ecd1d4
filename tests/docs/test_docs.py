"""The documents are true: their commands and code run, their tables match the code."""

import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from estimator import DATA, read_records
from estimator import METHODS as ESTIMATORS
from estimator import table as estimator_table
from saas_ssl.experiments.reproduce import EXPERIMENTS
from saas_ssl.experiments.table import of_arms, table
from saas_ssl.experiments.verdicts import CLAIMS, as_markdown
from saas_ssl.methods import METHODS
from saas_ssl.training.presets import PRESETS, Settings
from saas_ssl.vision.augment import RECIPES
from saas_ssl.vision.networks import NETWORKS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
ESTIMATOR, PYTHON, RESULTS = (
    (ROOT / "docs" / f"{name}.md").read_text() for name in ("estimator", "python", "results")
)
BLOCKS = re.findall(r"```python\n(.*?)```", README + PYTHON + ESTIMATOR, flags=re.DOTALL)
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_code_in_documents_runs(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "block", "exec"), {"__name__": "__main__"})  # noqa: S102
    assert capsys.readouterr().out.strip()


def test_commands_in_documents_exist() -> None:
    """`saas demo` itself runs in test_cli.py; here are its options, and make's targets."""
    commands = re.findall(r"^\$ (.+)$", README + PYTHON + RESULTS, flags=re.MULTILINE)
    assert len(commands) == 8
    for command in commands:
        name, *arguments = command.split()
        executable = Path(sys.executable).with_name(name)
        help_text = subprocess.run(
            [executable, arguments[0], "--help"], capture_output=True, text=True, check=True
        ).stdout
        for option in (word for word in arguments if word.startswith("--")):
            assert option in help_text
    targets = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for target in re.findall(r"make ([a-z-]+)", README):
        assert f"make {target}" in targets


def test_paper_map_lists_every_symbol_with_its_public_name() -> None:
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in (ROOT / "docs" / "paper-map.md").read_text().splitlines()
        if line.startswith("| ")
    ]
    symbols_of = {}
    for row in rows:
        if len(row) == 4:
            for public in re.findall(r"`(\w+)`", row[3]):
                symbols_of[public] = re.findall(r"`(\w+)`", row[2])
    for public, field in Settings.model_fields.items():
        assert field.description
        extra = field.json_schema_extra
        if isinstance(extra, dict):
            symbol = {"G": "augment"}.get(str(extra["symbol"]), extra["symbol"])
            assert symbol in symbols_of[public]


def test_every_setting_is_in_the_document_of_the_command_line() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for name, field in Settings.model_fields.items():
        extra = field.json_schema_extra
        symbol = f"`{extra['symbol']}`" if isinstance(extra, dict) else ""
        assert f"| `{name}` | {symbol} | {field.description} |" in text
    for name in PRESETS:
        assert f"`{name}`" in text


def test_margin_numbers_of_the_algorithm_are_complete() -> None:
    source = (ROOT / "src" / "saas_ssl" / "algorithm" / "phases.py").read_text()
    numbers = {
        int(number)
        for margin in re.findall(r"#  +([\d, ]+)$", source, flags=re.MULTILINE)
        for number in margin.split(",")
    }
    # Line 2 selects learning rates, 3 and 17 are headings, 8 and 14 comments, 13 and 16 ends.
    assert numbers == {1, 4, 5, 6, 7, 9, 10, 11, 12, 15, 18, 19, 20, 21, 22}


def test_each_phase_fits_one_screen() -> None:
    import inspect

    from saas_ssl.algorithm import phases

    for phase in (phases.phase_one, phases.phase_two):
        assert len(inspect.getsource(phase).splitlines()) <= 70
    text = inspect.getsource(phases)
    for word in ("print(", "open(", "Path", "cuda", ".device", "logging"):
        assert word not in text


def test_documents_name_what_exists() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    for name in (*NETWORKS, *RECIPES, "digits", "paper-cifar10", "paper-svhn", "authors-code"):
        assert f"`{name}`" in changelog
    assert set(PRESETS) >= {"digits", "paper-cifar10", "paper-svhn", "authors-code"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", document.read_text()):
        if not target.startswith("http"):
            place = document.parent / target if target else document
            assert place.exists()
            assert not anchor or anchor in anchors_of(place)


def anchors_of(document: Path) -> list[str]:
    """What GitHub makes of headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), flags=re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings]


def test_the_readme_is_a_screen_and_a_half() -> None:
    assert len(README.splitlines()) <= 120
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(example.splitlines()) <= 12


def test_the_index_names_every_document() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for path in [*(ROOT / "docs").glob("*.*"), *(ROOT / "docs" / "examples").glob("*.py")]:
        name = path.relative_to(ROOT / "docs").as_posix()
        assert name == "README.md" or f"]({name}" in index


def test_every_method_and_its_settings_are_in_the_document_of_the_comparison() -> None:
    text = (ROOT / "docs" / "comparison.md").read_text()
    for name, known in METHODS.items():
        assert f"`{name}`" in text
        assert (ROOT / "src" / "saas_ssl" / "methods" / f"{name}.py").exists()
        for setting, field in known.settings.model_fields.items():
            if setting not in Settings.model_fields:
                assert f"| `{setting}` |" in text
                assert field.description
                assert f"| {field.description} |" in text


def test_published_numbers_of_the_estimator_are_those_of_the_runs() -> None:
    path = ROOT / "results" / "estimator" / "results.jsonl"
    records = read_records(path.read_text().splitlines())
    assert {r["data"] for r in records} == set(DATA)
    assert len(records) == len(DATA) * len(ESTIMATORS) * 5
    for quantity in ("test_accuracy", "unlabelled_accuracy", "seconds"):
        assert estimator_table(records, quantity) in ESTIMATOR
    for name in DATA:  # what the document says of all of them
        saas, supervised = (
            mean(r["test_accuracy"] for r in records if (r["data"], r["method"]) == (name, method))
            for method in ("SaaSClassifier", "supervised")
        )
        assert saas >= supervised


REPRODUCED = sorted((ROOT / "results" / "reproduction").glob("*/results.json"))


@pytest.mark.parametrize("path", REPRODUCED, ids=lambda path: path.parent.name)
def test_published_verdicts_follow_from_the_runs(path: Path) -> None:
    record = json.loads(path.read_text())
    conditions = record["conditions"]
    name, scale = conditions["experiment"], conditions["scale"]
    experiment = EXPERIMENTS[name]
    records: dict[str, dict[int, Any]] = {}
    for run in record["runs"]:
        records.setdefault(run["arm"], {})[run["seed"]] = run
    protocol = experiment.protocol(conditions["protocol"]["kind"])
    # The code's of today; a setting that is newer than the run had its default.
    assert type(protocol).model_validate(conditions["protocol"]) == protocol
    assert set(records) == set(experiment.arms(protocol))
    ordered = {arm: records[arm] for arm in experiment.arms(protocol)}
    verdicts = experiment.verdicts(ordered)
    assert [v.as_json()["verdict"] for v in verdicts] == [v["verdict"] for v in record["verdicts"]]
    summary = f"{of_arms(ordered)}\n{as_markdown(verdicts)}"
    assert (path.parent / "summary.md").read_text() == summary
    text = (ROOT / "docs" / "reproduction.md").read_text()
    assert summary in text
    assert scale == "laptop"
    assert (path.parent / "figure.svg").exists()
    assert f"(../results/reproduction/{path.parent.name}/figure.png)" in text


def test_every_experiment_was_run_and_every_claim_judged() -> None:
    runs = [json.loads(path.read_text()) for path in REPRODUCED]
    assert {run["conditions"]["experiment"] for run in runs} == set(EXPERIMENTS)
    assert {v["claim"] for run in runs for v in run["verdicts"]} == set(CLAIMS)
    text = (ROOT / "docs" / "reproduction.md").read_text()
    for number, claim in CLAIMS.items():
        assert f"| {number} | {claim} |".replace("|B|", "\\|B\\|") in text


@pytest.mark.parametrize(
    "path", sorted((ROOT / "results").glob("*/results.json")), ids=lambda path: path.parent.name
)
def test_published_numbers_are_those_of_the_runs(path: Path) -> None:
    text = (ROOT / "docs" / "comparison.md").read_text()
    record = json.loads(path.read_text())
    assert set(METHODS) == {row["method"] for row in record["test_error"]}
    for row in table(record["cells"], "test_error"):
        spread = "" if row.std is None else f" ± {100 * row.std:.2f}"
        assert f"| `{row.method}` | {100 * row.mean:.2f}{spread} |" in text
