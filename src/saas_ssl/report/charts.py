"""Charts as inline SVG: plain shapes whose colours and type are up to the style sheet."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from saas_ssl.report.names import width

_WIDTH = 440  # in the units of all charts; a phone shows three quarters of it as pixels
_MOST_DOTS = 15  # on a line
_ROUNDING = 1e-9  # less than this is nothing


@dataclass(frozen=True)
class About:
    """What a chart is to those who do not see it."""

    id: str
    title: str
    description: str


@dataclass(frozen=True)
class Series:
    """A line, or dots."""

    name: str
    values: Sequence[float]
    tone: str  # a class of the style sheet


@dataclass(frozen=True)
class Bars:
    """Two shares that belong together, and what is written behind their bars."""

    name: str
    upper: tuple[float, str]
    lower: tuple[float, str]


@dataclass(frozen=True)
class Dots:
    """The bins of a reliability diagram: rows of like probability."""

    bins: Sequence[Mapping[str, float]]  # rows, said, true
    tone: str


@dataclass(frozen=True)
class _Frame:
    """Where the plot is, and from which numbers to which it goes."""

    left: float
    right: float
    top: float
    bottom: float
    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, value: float) -> float:
        return self.left + (self.right - self.left) * _between(value, *self.x)

    def up(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * _between(value, *self.y)


def line_chart(
    about: About,
    x: Sequence[int],
    names: tuple[str, str],
    series: Sequence[Series],
    highest: float,
    tick: Callable[[float], str],
    value: Callable[[float], str],
) -> str:
    """Lines over whole numbers, from 0 up; each ends with its value and its name.

    `names` are those of what is across and of what is up.
    """
    ticks = _ticks(highest)
    frame = _Frame(56, _WIDTH - 14, 34, 222, (x[0], x[-1]), (0.0, ticks[-1]))
    svg = _svg(about, 272)
    _grid(svg, frame, ticks, tick)
    for at in _whole_ticks(x[0], x[-1]):
        _text(svg, frame.across(at), frame.bottom + 20, str(at), "tick middle")
    _name_axes(svg, frame, names)
    for one in series:
        places = [(frame.across(a), frame.up(b)) for a, b in zip(x, one.values, strict=True)]
        points = " ".join(f"{_n(a)},{_n(b)}" for a, b in places)
        _shape(svg, "polyline", f"line {one.tone}", points=points)
        for a, b in places if len(places) <= _MOST_DOTS else places[-1:]:
            _shape(svg, "circle", f"dot {one.tone}", cx=a, cy=b, r=4)
        a, b = places[-1]
        below = b < frame.top + 24
        words = f"{value(one.values[-1])} {one.name}".strip()
        _text(svg, a + 4, b + (24 if below else -12), words, f"value {one.tone} end")
    return _written(svg)


def bars(about: About, rows: Sequence[Bars]) -> str:
    """Two bars for each name, one below the other, all on one scale."""
    left = 18 + 9.5 * max(width(row.name) for row in rows)  # as wide as a phone's large type
    right, step = _WIDTH - 70, 42
    longest = max(max(row.upper[0], row.lower[0]) for row in rows) or 1.0
    svg = _svg(about, len(rows) * step + 4)
    for n, row in enumerate(rows):
        top = n * step + 6
        _text(svg, left - 12, top + 18, row.name, "label end")
        for (share, words), tone, y, height in (
            (row.upper, "first", top, 14),
            (row.lower, "second", top + 17, 9),
        ):
            length = (right - left) * share / longest
            _shape(svg, "rect", f"bar {tone}", x=left, y=y, width=length, height=height, rx=2)
            _text(svg, left + length + 6, y + height / 2 + 4.5, words, f"count {tone}")
    _shape(svg, "line", "axis", x1=left, x2=left, y1=2, y2=len(rows) * step + 2)
    return _written(svg)


def reliability_diagram(about: About, names: tuple[str, str], dots: Sequence[Dots]) -> str:
    """How often labels were right by how probable they were said to be; many rows, large dots."""
    frame = _Frame(56, _WIDTH - 26, 30, 370, (0.0, 1.0), (0.0, 1.0))
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
    svg = _svg(about, 422)
    _grid(svg, frame, ticks, "{:.0%}".format)
    for at in ticks:
        _text(svg, frame.across(at), frame.bottom + 20, f"{at:.0%}", "tick middle")
    _name_axes(svg, frame, names)
    ends = {"x1": frame.left, "y1": frame.bottom, "x2": frame.right, "y2": frame.top}
    _shape(svg, "line", "diagonal", **ends)
    for one in dots:
        most = max(b["rows"] for b in one.bins)
        for b in one.bins:
            radius = 3.5 + 10.5 * math.sqrt(b["rows"] / most)
            place = {"cx": frame.across(b["said"]), "cy": frame.up(b["true"])}
            dot = _shape(svg, "circle", f"bin {one.tone}", **place, r=radius)
            words = f"{b['said']:.1%} said, {b['true']:.1%} right, rows: {b['rows']:,}"
            SubElement(dot, "title").text = words
    return _written(svg)


def _between(value: float, low: float, high: float) -> float:
    """0 at low, 1 at high; the middle if there is nothing between."""
    return (value - low) / (high - low) if high > low else 0.5


def _ticks(highest: float) -> list[float]:
    """About four round numbers above 0, the last of which is no less than the highest value."""
    step = _round_step(highest / 4) if highest > _ROUNDING else 1.0
    return [step * n for n in range(max(1, math.ceil(highest / step - _ROUNDING)) + 1)]


def _whole_ticks(first: int, last: int) -> list[int]:
    """A few whole numbers between these."""
    step = max(1, math.ceil(_round_step((last - first) / 7))) if last > first else 1
    multiples = (step * n for n in count(math.ceil(first / step)))
    return list(takewhile(lambda at: at <= last, multiples))


def _round_step(least: float) -> float:
    """1, 2, 2.5 or 5 times a power of ten, no less than this."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(n * power for n in (1, 2, 2.5, 5, 10) if n * power >= least * (1 - _ROUNDING))


def _grid(
    svg: Element, frame: _Frame, ticks: Sequence[float], tick: Callable[[float], str]
) -> None:
    """Lines across at the ticks, with their numbers to the left."""
    for at in ticks:
        y, kind = frame.up(at), "grid" if at > ticks[0] else "axis"
        _shape(svg, "line", kind, x1=frame.left, x2=frame.right, y1=y, y2=y)
        _text(svg, frame.left - 8, y + 4.5, tick(at), "tick end")


def _name_axes(svg: Element, frame: _Frame, names: tuple[str, str]) -> None:
    """Below the plot, and above its left edge."""
    across, up = names
    _text(svg, (frame.left + frame.right) / 2, frame.bottom + 44, across, "name middle")
    _text(svg, 0, 14, up, "name")


def _svg(about: About, height: float) -> Element:
    svg = Element(
        "svg",
        {
            "class": "chart",
            "viewBox": f"0 0 {_WIDTH} {_n(height)}",
            "role": "img",
            "aria-labelledby": f"{about.id}-title {about.id}-description",
        },
    )
    SubElement(svg, "title", {"id": f"{about.id}-title"}).text = about.title
    SubElement(svg, "desc", {"id": f"{about.id}-description"}).text = about.description
    return svg


def _shape(svg: Element, tag: str, kind: str, **attributes: Any) -> Element:
    """A shape of a class of the style sheet, its places to a tenth."""
    written = {k: v if isinstance(v, str) else _n(v) for k, v in attributes.items()}
    return SubElement(svg, tag, {"class": kind, **written})


def _text(svg: Element, x: float, y: float, words: str, kind: str) -> None:
    _shape(svg, "text", kind, x=x, y=y).text = words


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _written(svg: Element) -> str:
    """As text, in which ElementTree has escaped everything."""
    return tostring(svg, encoding="unicode")
