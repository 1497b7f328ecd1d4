from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saas_ssl.report.charts import About, Bars, Series, bars, line_chart


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300))
def test_lines_of_any_numbers_are_drawn_within_the_chart(values: list[float]) -> None:
    svg = fromstring(  # noqa: S314 - our own
        line_chart(
            About("x", "<&>", '"'),
            range(1, len(values) + 1),
            ("x", "y"),
            [Series("y", values, "first")],
            max(values),
            "{:g}".format,
            "{:.3f}".format,
        )
    )
    _, _, right, bottom = map(float, svg.attrib["viewBox"].split())
    (line,) = svg.iter("polyline")
    for place in line.attrib["points"].split():
        x, y = map(float, place.split(","))
        assert 0 <= x <= right
        assert 0 <= y <= bottom
    ticks = [text.text for text in svg.iter("text") if text.attrib["class"] == "tick middle"]
    assert 1 <= len(ticks) <= 9
    assert all(1 <= int(tick or 0) <= len(values) for tick in ticks)


def test_bars_are_as_long_as_their_shares() -> None:
    svg = fromstring(  # noqa: S314 - our own
        bars(
            About("x", "t", "d"),
            [Bars("a", (0.5, "5"), (0.25, "1")), Bars("b", (0, "0"), (1, "4"))],
        )
    )
    lengths = [float(bar.attrib["width"]) for bar in svg.iter("rect")]
    assert lengths == pytest.approx([lengths[3] / 2, lengths[3] / 4, 0, lengths[3]], abs=0.11)
