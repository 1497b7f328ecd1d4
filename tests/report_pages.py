"""Pages of runs that were never made."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saas_ssl.report import Thumbnail, write_report
from saas_ssl.runs.files import save_tensors, write_skipped
from saas_ssl.runs.labels import write_labels
from saas_ssl.sources.source import Skipped
from saas_ssl.trust.decisions import LabelRow
from samples import encoded, picture

HOSTILE = [
    "<script>alert(1)</script>.png",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><svg/onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;&#x3c;!-- ]]> ",
    "javascript:alert(1)",
    "photo\u202egpj.exe",
    "two\nlines\r\nand\ta tab",
    "bell\x07null\x00escape\x1b[31m",
    "שלום עולם",
    "猫" * 300,
    "x" * 5000,
    "   ",
]
VOID = {"meta", "img"}
WITHIN_WORDS = {"a", "b", "bdi", "code", "strong"}


@dataclass
class Page(HTMLParser):
    """A page as a browser sees it: its elements in order, its text, and what is out of order."""

    source: str
    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        self._part(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self._part(tag)

    def _part(self, tag: str) -> None:
        if tag not in WITHIN_WORDS:
            self.texts.append(" ")

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All of it with single spaces, pieces as they stand in the page."""
        return " ".join("".join(self.texts).split())

    @property
    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        """The elements with the names of their attributes."""
        return [(tag, tuple(attributes)) for tag, attributes in self.elements]

    def values(self, name: str) -> list[str]:
        """Those of one attribute, in order."""
        return [str(found[name]) for _, found in self.elements if name in found]


def inferred_row(id_: str, label: str, p: float, runner_up: str, decision: str = "") -> LabelRow:
    decision = decision or ("accept" if p >= 0.95 else "review")
    reason = "unknown? It was slow to learn" if decision == "outlier" else ""
    return LabelRow(id_, label, p, "inferred", decision, runner_up, 1 - p, reason)


def some_rows(
    classes: Sequence[str], name: Callable[[int], str] = "row {}.png".format
) -> list[LabelRow]:
    """Given ones, of which one is suspected, and inferred ones of every decision."""
    a, b = classes[0], classes[-1]
    rows = [
        LabelRow(name(k), own, 1.0, "given", "accept", "", 0.0) for k, own in enumerate(classes)
    ]
    reason = f"given as {a} but without this label it looks like {b} (93%)"
    rows.append(LabelRow(name(100), a, 0.02, "given", "review", b, 0.93, reason))
    rows += [inferred_row(name(200 + n), classes[n % len(classes)], 0.99, a) for n in range(30)]
    rows += [inferred_row(name(300 + n), b, 0.5 + n / 100, a) for n in range(5)]
    rows += [inferred_row(name(400 + n), a, 0.31, b, "outlier") for n in range(2)]
    return rows


@dataclass
class Made:
    """What a run directory is made of."""

    classes: Sequence[str] = ("cat", "dog", "owl")
    rows: Sequence[LabelRow] | None = None
    probabilities: Tensor | None = None
    outers: int = 3
    known: bool = True
    skipped: Sequence[Skipped] = (Skipped("broken.jpg", "the file is empty"),)
    command: str | None = "saas label photos --out runs/photos"
    changes: dict[str, Any] = field(default_factory=dict)  # of the results
    trust: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> dict[str, Any]:
        """Write all files but run.json, which is returned."""
        rows = some_rows(self.classes) if self.rows is None else self.rows
        folder.mkdir(parents=True, exist_ok=True)
        write_labels(folder / "labels.csv", rows)
        p = self.probabilities
        p = torch.full((len(rows), len(self.classes)), 0.25) if p is None else p
        save_tensors(folder / "posterior.safetensors", {"probabilities": p, "P_u": p[:0]})
        write_skipped(folder / "skipped.csv", self.skipped)
        lines = [{"phase": "supervised", "epoch": 0, "loss": 2.0, "seconds": 1.0}]
        lines += [self._outer(m) for m in range(self.outers)]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
        return self._record(rows)

    def _outer(self, m: int) -> dict[str, Any]:
        return {
            "phase": "one",
            "outer": m,
            "cumulative_loss": max(1.0, 2.5 - 0.25 * m),
            "changed": 0.8 * 0.25**m,
            "unlabelled_accuracy": min(1.0, 0.9 + 0.01 * m) if self.known else None,
            "seconds": 10.0 * m,
        }

    def _record(self, rows: Sequence[LabelRow]) -> dict[str, Any]:
        inferred = [row.decision for row in rows if row.source == "inferred"]
        bins = [{"rows": 4, "said": 0.61, "true": 0.5}, {"rows": 36, "said": 0.97, "true": 1.0}]
        measured = {"reliability": [{"rows": len(inferred), "said": 0.93, "true": 0.9}]}
        trust = {
            "left_out": 40,
            "left_out_right": 38,
            "few_labels": False,
            "a": 2.0,
            "all": {"estimate": 0.9612, "low": 0.9134, "high": 0.9856},
            "accepted": {"estimate": 0.9912, "low": 0.97, "high": 1.0},
            "suspects": sum(row.source == "given" and row.decision == "review" for row in rows),
            "shift": None,
            "reliability": bins,
            "measured": measured if self.known else None,
            **self.trust,
        }
        return {
            "command": self.command,
            "config": {"inner_epochs": 4, "network": "small_conv", "width": None, "whiten": False},
            "seed": 4711,
            "scrutiny": {"accept": 0.95, "label_folds": 5},
            "data": {
                "fingerprint": "ab" * 32,
                "classes": list(self.classes),
                "in_shape": [3, 24, 32],
                "labelled": len(rows) - len(inferred),
                "unlabelled": len(inferred),
                "validation": 0,
                "test": 0,
                "skipped": len(self.skipped),
            },
            "plan": {"seconds": 12.0},
            "started": "2026-01-01T00:00:00+00:00",
            "results": {
                "supervised": {"validation_error": None, "test_error": None, "seconds": 3.0},
                "saas": {"validation_error": None, "test_error": None, "unlabelled_error": None},
                "inner": {"error": 0.1, "supervised_error": 0.1, "rows": 40},
                "validation": None,
                "accepted": inferred.count("accept"),
                "review": inferred.count("review"),
                "outliers": inferred.count("outlier"),
                "trust": trust,
                "outer_iterations": self.outers,
                "seconds": 99.0,
                **self.changes,
            },
            "versions": {"python": "3.11.7", "saas-ssl": "0.1.0", "torch": "2.13.0"},
            "hardware": {"platform": "linux x86_64", "cores": 2, "threads": 1},
        }


def dot(_row: int) -> tuple[bytes, str]:
    return encoded(picture(4, 4)), "image/png"


def page_of(
    folder: Path, made: Made | None = None, thumbnail: Thumbnail | None = dot, **record: Any
) -> Page:
    whole = (made or Made()).write(folder)
    write_report(folder, {**whole, **record}, thumbnail)
    return Page((folder / "report.html").read_text(encoding="utf-8"))
