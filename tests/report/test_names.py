import pytest
from hypothesis import given
from hypothesis import strategies as st

from saas_ssl.report.names import one_line, width


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\n b\t\u2028c", "a b c"),
        ("\u202eevil", "\\u202eevil"),
        ("\x00", "\\x00"),
        ("  ", "(no name)"),
        ("👩\u200d👧 مثال", "👩\u200d👧 مثال"),
        ("a" * 50 + "b" * 50, "a" * 39 + "…" + "b" * 39),
        ("猫" * 41, "猫" * 19 + "…" + "猫" * 19),
    ],
)
def test_names_are_one_visible_line(name: str, shown: str) -> None:
    assert one_line(name) == shown


@given(st.text(st.characters()), st.integers(3, 100))
def test_names_are_never_too_long(name: str, longest: int) -> None:
    line = one_line(name, longest)
    assert width(line) <= max(longest, len("(no name)"))
    assert "\n" not in line
    line.encode()
