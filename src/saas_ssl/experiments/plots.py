"""Plots of comparisons."""

import io
from collections.abc import Sequence

from matplotlib.figure import Figure

from saas_ssl.experiments.table import OURS, Row


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
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120, metadata={"Software": None})
    return file.getvalue()
