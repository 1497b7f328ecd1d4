"""The figures of the report: each a chart, how to read it, what it says here, and its numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from saas_ssl.report.charts import (
    About,
    Bars,
    Dots,
    Series,
    bars,
    line_chart,
    reliability_diagram,
)
from saas_ssl.report.choosing import evenly_spaced
from saas_ssl.report.names import one_line, quoted
from saas_ssl.report.reading import OuterIteration
from saas_ssl.sources.wording import counted

_MOST_POINTS = 200
_HARDLY = 0.005  # a change of the loss that is none
_RESTLESS = 0.05  # share of labels that a last outer iteration may change
_NONE = "There was no outer iteration, so there is nothing to show."


@dataclass(frozen=True)
class Key:
    """What a tone stands for."""

    tone: str
    words: str


@dataclass(frozen=True)
class Figure:
    """A chart, if there is something to draw, and its words."""

    id: str
    title: str
    reading: str  # how to read it
    here: str  # what it says of this run
    chart: str | None = None  # SVG
    keys: Sequence[Key] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def learning_speed(outers: Sequence[OuterIteration]) -> Figure:
    """The cumulative loss of each outer iteration."""
    title = "Learning speed"
    reading = (
        "Each outer iteration trains a fresh network for a short while and adds up its loss: "
        "the lower the curve, the faster the labels of that moment were learnt."
    )
    if not outers:
        return Figure("speed", title, reading, _NONE)
    losses = [one.cumulative_loss for one in outers]
    here, shown = _faster(losses), _thinned(outers)
    chart = line_chart(
        About("speed", "Cumulative loss by outer iteration", here),
        [one.outer + 1 for one in shown],
        ("outer iteration", "cumulative loss"),
        [Series("", [one.cumulative_loss for one in shown], "first")],
        max(losses),
        "{:g}".format,
        "{:.3f}".format,
    )
    rows = [[str(one.outer + 1), f"{one.cumulative_loss:.3f}"] for one in shown]
    columns = ["outer iteration", "cumulative loss"]
    return Figure("speed", title, reading, here, chart, (), columns, rows)


def _faster(losses: Sequence[float]) -> str:
    first, last = losses[0], losses[-1]
    if len(losses) == 1:
        return "Here there was one outer iteration only, so there is nothing to compare it with."
    lower = 1 - last / first if first > 0 else 0.0
    if abs(lower) < _HARDLY:
        return "Here the networks learnt as fast at the end as in the first outer iteration."
    if lower > 0:
        return (
            f"Here the networks learnt {lower:.0%} faster at the end than in the first outer "
            f"iteration: their loss went from {first:.3f} to {last:.3f}."
        )
    return (
        f"Here the networks learnt {-lower:.0%} slower at the end than in the first outer "
        f"iteration: their loss went from {first:.3f} to {last:.3f}, which is unusual."
    )


def convergence(outers: Sequence[OuterIteration]) -> Figure:
    """How many labels each outer iteration changed; how many were right, where that is known."""
    title = "Convergence of the labels"
    reading = (
        "The share of the labels that each outer iteration changed: when it is small, further "
        "iterations would change little."
    )
    if not outers:
        return Figure("convergence", title, reading, _NONE)
    last, shown = outers[-1], _thinned(outers)
    here = f"Here the last one changed {last.changed:.1%} of the labels"
    series = [Series("changed", [one.changed for one in shown], "first")]
    columns = ["outer iteration", "labels changed"]
    rows = [[str(one.outer + 1), f"{one.changed:.1%}"] for one in shown]
    right = [one.unlabelled_accuracy for one in shown if one.unlabelled_accuracy is not None]
    if len(right) == len(shown):
        here += f", and {right[-1]:.1%} of all were right after it"
        series.append(Series("right", right, "second"))
        columns.append("labels right")
        rows = [[*row, f"{share:.1%}"] for row, share in zip(rows, right, strict=True)]
    here += ": many are still moving." if last.changed > _RESTLESS else "."
    chart = line_chart(
        About("convergence", "Share of labels changed by outer iteration", here),
        [one.outer + 1 for one in shown],
        ("outer iteration", "share of the labels"),
        series,
        1.0,
        "{:.0%}".format,
        "{:.1%}".format,
    )
    return Figure("convergence", title, reading, here, chart, (), columns, rows)


def reliability(trust: Mapping[str, Any]) -> Figure:
    """Whether labels are right as often as their probabilities say; `trust` is of run.json."""
    title = "Reliability of the probabilities"
    reading = (
        "A dot is a group of labels of like probability, the larger the more of them there are. "
        "On the dashed line they are right as often as was said, below it less often: "
        "the probabilities were too high."
    )
    measured = trust["measured"] or {"reliability": []}
    groups = [
        (Key("first", "given labels that were left out"), trust["reliability"]),
        (Key("second", "inferred labels, whose truth is known"), measured["reliability"]),
    ]
    found = [(key, bins) for key, bins in groups if bins]
    here = " ".join(_kept_word(key.words, bins) for key, bins in found)
    if not trust["left_out"]:
        none = "No given label was left out, so nothing was measured that could vouch for them."
        here = f"{none} {here}".strip()
    if not found:
        return Figure("reliability", title, reading, here)
    chart = reliability_diagram(
        About("reliability", "Share of right labels by the probability that was said", here),
        ("probability that was said", "share that was right"),
        [Dots(bins, key.tone) for key, bins in reversed(found)],
    )
    rows = [
        [key.words, f"{b['rows']:,}", f"{b['said']:.1%}", f"{b['true']:.1%}"]
        for key, bins in found
        for b in bins
    ]
    keys = [key for key, _ in found]
    columns = ["labels", "rows", "said", "right"]
    return Figure("reliability", title, reading, here, chart, keys, columns, rows)


def _kept_word(words: str, bins: Sequence[Mapping[str, float]]) -> str:
    rows = int(sum(b["rows"] for b in bins))
    said, true = (sum(b["rows"] * b[name] for b in bins) / rows for name in ("said", "true"))
    return f"Of {rows:,} {words}, {true:.1%} were right; the probabilities said {said:.1%}."


def class_counts(
    classes: Sequence[str], given: Tensor, inferred: Tensor, shown: Sequence[int]
) -> Figure:
    """How many labels of each class were given and inferred; `given` and `inferred` (K,) count."""
    all_given, all_inferred = max(1, int(given.sum())), max(1, int(inferred.sum()))
    here = _largest(classes, inferred, all_inferred)
    pairs = [
        Bars(
            one_line(classes[k], 14),
            (int(inferred[k]) / all_inferred, f"{int(inferred[k]):,}"),
            (int(given[k]) / all_given, f"{int(given[k]):,}"),
        )
        for k in shown
    ]
    rows = [
        [
            one_line(classes[k]),
            *(f"{int(given[k]):,}", f"{int(given[k]) / all_given:.1%}"),
            *(f"{int(inferred[k]):,}", f"{int(inferred[k]) / all_inferred:.1%}"),
        ]
        for k in shown
    ]
    if more := len(classes) - len(shown):
        here += (
            f" The {len(shown)} classes of most inferred labels are shown; there are {more:,} more."
        )
    return Figure(
        "classes",
        "Classes",
        "For each class, its share of the inferred labels and below it its share of the given "
        "ones, with their numbers: bars of like length are what to expect if the given labels "
        "are a fair sample.",
        here,
        bars(About("classes", "Inferred and given labels by class", here), pairs),
        [Key("first", "inferred"), Key("second", "given")],
        ["class", "given", "of all given", "inferred", "of all inferred"],
        rows,
    )


def _largest(classes: Sequence[str], inferred: Tensor, n: int) -> str:
    most, least = int(inferred.argmax()), int(inferred.argmin())
    here = (
        f"Here {quoted(classes[most])} is the largest class with "
        f"{counted(int(inferred[most]), 'inferred label')} ({inferred[most] / n:.1%})"
    )
    if empty := int((inferred == 0).sum()):
        names = quoted(classes[least]) if empty == 1 else f"{empty:,} classes"
        return f"{here}; {names} got none at all."
    return (
        f"{here} and {quoted(classes[least])} the smallest with "
        f"{int(inferred[least]):,} ({inferred[least] / n:.1%})."
    )


def _thinned(outers: Sequence[OuterIteration]) -> list[OuterIteration]:
    """All of them, or so many as can be told apart."""
    return [outers[place] for place in evenly_spaced(len(outers), _MOST_POINTS)]
