"""report.html: what a run did and how far to trust it, on one page that needs nothing else."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from torch import Tensor

from saas_ssl.progress.summary import findings
from saas_ssl.report.choosing import MOST_CLASSES, Examples, examples, shown_classes
from saas_ssl.report.confusion import expected_confusion, expected_wrong, largest_pairs
from saas_ssl.report.figures import class_counts, convergence, learning_speed, reliability
from saas_ssl.report.gallery import Thumbnail, Tile, tiles
from saas_ssl.report.names import one_line, visible
from saas_ssl.report.reading import columns, label_rows, outer_iterations, skipped_files
from saas_ssl.runs.checkpoints import write_safely
from saas_ssl.runs.files import LABELS_FILE, METRICS_FILE, POSTERIOR_FILE, REPORT_FILE, SKIPPED_FILE
from saas_ssl.sources.wording import counted

_MOST_SKIPPED = 100
_NO_ROW = 0.05


def write_report(directory: Path, record: Mapping[str, Any], thumbnail: Thumbnail | None) -> None:
    """Write report.html from the other files of the run.

    `record` is the whole of run.json, which need not be written yet; rows of features have no
    `thumbnail`. The page depends on nothing else, so that the same run gives the same bytes.
    """
    page = _environment().get_template("page.html").render(_content(directory, record, thumbnail))
    write_safely(directory / REPORT_FILE, page.encode())


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("saas_ssl.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "one_line": one_line,
        "visible": visible,
        "number": "{:,}".format,
        "percent": "{:.1%}".format,
        "rows": _about,
        "setting": _setting,
    }
    return environment


def _content(
    directory: Path, record: Mapping[str, Any], thumbnail: Thumbnail | None
) -> dict[str, Any]:
    """Everything that the page shows."""
    data, results, classes = record["data"], record["results"], record["data"]["classes"]
    headline, *sentences = findings(record, SKIPPED_FILE)
    labels = directory / LABELS_FILE
    table = columns(label_rows(labels), classes)
    given, inferred = (
        torch.bincount(table.label[mask], minlength=len(classes))
        for mask in (table.given, ~table.given)
    )
    shown = shown_classes(inferred)
    chosen = examples(table, shown)
    confusion = expected_confusion(
        directory / POSTERIOR_FILE, table.label, table.given, len(classes)
    )
    outers = outer_iterations(directory / METRICS_FILE)
    skipped, n_skipped = skipped_files(directory / SKIPPED_FILE, _MOST_SKIPPED)
    return {
        "styles": [_style("saas_ssl.report", "theme.css"), _style("saas_ssl.report", "style.css")],
        "title": f"{counted(data['unlabelled'], 'row')} labelled",
        "headline": headline,
        "sentences": sentences,
        "data": data,
        "results": results,
        "trust": results["trust"],
        "accept": record["scrutiny"]["accept"],
        "to_check": _to_check(results),
        "files": {"labels": LABELS_FILE, "skipped": SKIPPED_FILE},
        "curves": [learning_speed(outers), convergence(outers)],
        "reliability": reliability(results["trust"]),
        "counts": class_counts(classes, given, inferred, shown),
        "confusion": _confusion(confusion, classes),
        **_galleries(chosen, tiles(labels, chosen.all(), thumbnail), classes, inferred),
        "more_classes": len(classes) - len(shown),
        "n_suspects": int(table.suspected.sum()),
        "n_outliers": int(table.outlier.sum()),
        "skipped": skipped,
        "n_skipped": n_skipped,
        "command": record["command"],
        "facts": _facts(record),
    }


def _style(package: str, name: str) -> str:
    return (files(package) / name).read_text(encoding="utf-8")


def _to_check(results: Mapping[str, Any]) -> dict[str, int]:
    """What a person should look at, by its kind."""
    return {
        "uncertain": results["review"],
        "suspected": results["trust"]["suspects"],
        "strange": results["outliers"],
    }


def _confusion(confusion: Tensor, classes: Sequence[str]) -> dict[str, Any]:
    """The largest pairs, and the whole table if it is not too large."""
    pairs = largest_pairs(confusion)
    most = pairs[0].rows if pairs else 1.0
    return {
        "wrong": expected_wrong(confusion),
        "pairs": [(classes[pair.label], classes[pair.other], pair.rows) for pair in pairs],
        "table": confusion.tolist() if len(classes) <= MOST_CLASSES else None,
        "most": most,
        "least": _NO_ROW,
    }


def _galleries(
    chosen: Examples, found: Mapping[int, Tile], classes: Sequence[str], inferred: Tensor
) -> dict[str, Any]:
    return {
        "sure": [
            (classes[k], int(inferred[k]), [found[row] for row in rows])
            for k, rows in chosen.sure.items()
        ],
        "unsure": [found[row] for row in chosen.unsure],
        "suspects": [found[row] for row in chosen.suspects],
        "outliers": [found[row] for row in chosen.outliers],
    }


def _facts(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """What it takes to do the same again, by groups; nothing that a second run would change."""
    data = {**record["data"], "classes": len(record["data"]["classes"])}
    return {
        "Settings": record["config"],
        "Seed and checks": {"seed": record["seed"], **record["scrutiny"]},
        "Data": data,
        "Versions": record["versions"],
        "Hardware": record["hardware"],
    }


def _about(rows: float) -> str:
    """An expected number of rows."""
    if rows < _NO_ROW:
        return "0"
    return f"{rows:,.0f}" if rows >= 9.95 else f"{rows:.1f}"


def _setting(value: Any) -> str:
    """A value of run.json as people write it."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " × ".join(map(_setting, value))
    return one_line(str(value))
