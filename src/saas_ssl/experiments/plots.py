"""Plots of comparisons and of the paper's figures."""

import io
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from saas_ssl.experiments.table import OURS, Row

Curves = Mapping[str, Sequence[Sequence[float]]]
"""For each line its runs, each with one value for each x."""


def bars(rows: Sequence[Row], title: str, label: str) -> bytes:
    """A PNG file: the mean of each method as a bar, its standard deviation as an error bar."""
    figure = Figure(figsize=(8, 0.45 * len(rows) + 1.5), layout="constrained")
    axes = figure.add_subplot()
    several = any(row.runs > 1 for row in rows)
    axes.barh(
        [row.method.replace("_", " ") for row in rows],
        [100 * row.mean for row in rows],
        xerr=[100 * (row.std or 0.0) for row in rows] if several else None,
        color=["tab:orange" if row.method == OURS else "tab:blue" for row in rows],
        error_kw={"capsize": 3},
    )
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    over = "mean and standard deviation over labelled sets" if several else "one labelled set"
    axes.set_xlabel(f"{label}, % ({over})")
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    return as_file(figure, "png")


def curves(axes: Axes, x: Sequence[float], lines: Curves, marker: str = "") -> None:
    """The mean of each line over its runs, in a band of one standard deviation."""
    for name, runs in lines.items():
        values = np.asarray(runs, dtype=float)
        mean = values.mean(axis=0)
        (line,) = axes.plot(x, mean, label=name, marker=marker)
        if len(values) > 1:
            std = values.std(axis=0, ddof=1)
            axes.fill_between(x, mean - std, mean + std, color=line.get_color(), alpha=0.2, lw=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(lines) > 1:
        axes.legend(frameon=False)


def columns(axes: Axes, groups: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Bars of errors in %: for each group its members, mean and standard deviation of the runs."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    width = 0.8 / len(names)
    for n, name in enumerate(names):
        there = [(at, group[name]) for at, group in enumerate(groups.values()) if name in group]
        at = [place + (n - (len(names) - 1) / 2) * width for place, _ in there]
        values = [100 * np.asarray(runs, dtype=float) for _, runs in there]
        std = [own.std(ddof=1) if len(own) > 1 else np.nan for own in values]
        axes.bar(at, [own.mean() for own in values], 0.95 * width, yerr=std, label=name, capsize=3)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_ylabel("error, %")
    axes.spines[["top", "right"]].set_visible(False)
    if len(names) > 1:
        axes.legend(frameon=False)


def as_file(figure: Figure, kind: str) -> bytes:
    """The figure as png or svg, the same bytes for the same figure."""
    file = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "saas-ssl"}):
        undated: dict[str, str | None] = {"Software": None} if kind == "png" else {"Date": None}
        figure.savefig(file, format=kind, dpi=120, metadata=undated)
    return file.getvalue()
