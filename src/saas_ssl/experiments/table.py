"""The tables of a comparison: errors, and whether a difference to SaaS is more than chance."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from saas_ssl.experiments.statistics import deviation, differences, holm, paired_p

OURS = "saas"
ERRORS = {"test_error": "test error", "unlabelled_error": "error on the unlabelled rows"}


@dataclass(frozen=True)
class Row:
    """One method over all seeds; fractions, None where nothing is known."""

    method: str
    runs: int
    mean: float
    std: float | None
    difference: float | None = None  # mean over the seeds that SaaS has too; positive: worse
    p: float | None = None  # paired t-test over these seeds, two-sided
    p_holm: float | None = None  # the same, corrected for the number of methods


def table(cells: Sequence[Mapping[str, Any]], error: str) -> list[Row]:
    """A row for each method, the lowest mean first."""
    by_method: dict[str, dict[int, float]] = {}
    for cell in cells:
        if cell[error] is not None:
            by_method.setdefault(cell["method"], {})[cell["seed"]] = cell[error]
    ours = by_method.get(OURS, {})
    worse = {
        method: differences(errors, ours) for method, errors in by_method.items() if method != OURS
    }
    p = {method: paired_p(values) for method, values in worse.items()}
    corrected = holm({method: value for method, value in p.items() if value is not None})
    rows = [
        Row(
            method,
            len(errors),
            mean(errors.values()),
            deviation(list(errors.values())),
            mean(worse[method]) if worse.get(method) else None,
            p.get(method),
            corrected.get(method),
        )
        for method, errors in by_method.items()
    ]
    return sorted(rows, key=lambda row: row.mean)


def as_markdown(cells: Sequence[Mapping[str, Any]]) -> str:
    """All tables for people, errors in %."""
    parts = []
    for error, title in ERRORS.items():
        rows = table(cells, error)
        if rows:
            lines = [
                f"| method | {title}, % | seeds | difference to SaaS, points | p | p, Holm |",
                "|---|---|---|---|---|---|",
                *(f"| {' | '.join(_cells(row))} |" for row in rows),
            ]
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _cells(row: Row) -> list[str]:
    difference = "" if row.difference is None else f"{100 * row.difference:+.2f}"
    return [
        row.method,
        _percent(row.mean, row.std),
        str(row.runs),
        difference,
        *("" if p is None else f"{p:.3f}" for p in (row.p, row.p_holm)),
    ]


def of_arms(records: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> str:
    """The errors of each arm of an experiment for people, and how long a run took."""
    runs = {arm: list(seeds.values()) for arm, seeds in records.items()}
    there = [error for error in ERRORS if any(error in run for own in runs.values() for run in own)]
    heads = ["arm", *(f"{ERRORS[error]}, %" for error in there), "runs", "seconds a run"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for arm, own in runs.items():
        known = [[run[error] for run in own if error in run] for error in there]
        errors = [_percent(mean(values), deviation(values)) if values else "" for values in known]
        cells = [arm, *errors, str(len(own)), f"{mean(run['wall'] for run in own):.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _percent(mean: float, std: float | None) -> str:
    return f"{100 * mean:.2f}" + ("" if std is None else f" ± {100 * std:.2f}")


_COLUMNS = ("method", "seed", "test_error", "unlabelled_error", "passes", "seconds")


def as_csv(cells: Sequence[Mapping[str, Any]]) -> str:
    """One line per cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows([cell[name] for name in _COLUMNS] for cell in cells)
    return text.getvalue()
