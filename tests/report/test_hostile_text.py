from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from report_pages import HOSTILE, Made, dot, page_of, some_rows
from saas_ssl.report.names import one_line, visible
from saas_ssl.sources.source import Skipped


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_changes_nothing_but_the_text(tmp_path: Path, text: str) -> None:
    def made(words: str) -> Made:
        classes = [f"{words}{k}" for k in range(3)]
        return Made(
            classes=classes,
            rows=some_rows(classes, lambda row: f"{words}{row}"),
            skipped=[Skipped(words, words)],
            command=words,
            trust={"shift": {"class": words, "given": 0.5, "inferred": 0.1, "distance": 0.4}},
        )

    shift = "The classes have other shares among the inferred labels"
    for thumbnail in (None, dot):
        plain = page_of(tmp_path / "plain", made("plain"), thumbnail)
        page = page_of(tmp_path / "hostile", made(text), thumbnail)
        assert page.shape == plain.shape
    assert shift in page.text
    assert one_line(f"{text}0", 40) in page.text  # a class
    assert one_line(f"{text}200", 24) in page.text  # a row
    assert one_line(f"{text}200") in page.values("alt")
    assert f"{one_line(text)} {one_line(text, 300)}" in page.text  # a skipped file
    reason = f"given as {text}0 but without this label it looks like {text}2 (93%)"
    assert one_line(reason, 300) in page.text
    assert " ".join(visible(text).split()) in page.text  # the command
    assert not any(sign in page.source for sign in "\u202e\x00\x07\x1b")


@cache
def plain_shape(n_classes: int) -> list[tuple[str, tuple[str, ...]]]:
    with TemporaryDirectory() as folder:
        return page_of(Path(folder), Made([f"class {k}" for k in range(n_classes)])).shape


@settings(max_examples=40)
@given(
    names=st.lists(st.text(max_size=40), min_size=2, max_size=4, unique=True),
    id_=st.text(max_size=120),
    command=st.text(st.characters(), max_size=60),
)
def test_any_text_is_shown_and_is_only_text(names: list[str], id_: str, command: str) -> None:
    with TemporaryDirectory() as folder:
        rows = some_rows(names, lambda row: f"{row} {id_}")
        page = page_of(Path(folder), Made(classes=names, rows=rows, command=command))
    assert page.shape == plain_shape(len(names))
    for name in names:
        assert one_line(name, 40) in page.text
    assert one_line(f"200 {id_}") in page.values("alt")
    assert one_line(f"200 {id_}", 24) in page.text
    assert " ".join(visible(command).split()) in page.text


def test_a_command_that_is_no_utf_8_is_shown(tmp_path: Path) -> None:
    page = page_of(tmp_path, Made(command="saas label caf\udce9"))
    assert "saas label caf\\udce9" in page.text
