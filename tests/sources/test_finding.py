from pathlib import Path

import pytest

from saas_ssl.sources.finding import find
from samples import refusal, write


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("{}/none", "/none does not exist"),
        ("{}/none.csv", "/none.csv does not exist"),
        ("{}/none*.parquet", "/none*.parquet does not exist"),
        ("{}/film.avi", "is no kind of data that is known"),
        ("mnist", "mnist does not exist"),
        ("x" * 5000, "xxx does not exist"),
        ("", "the name of the data is empty"),
        ("idx:", "no idx files of train images"),
    ],
)
def test_what_is_no_source_is_refused(
    tmp_path: Path, spec: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "film.avi", b"film")
    monkeypatch.chdir(tmp_path)
    assert words in refusal(lambda: find(spec.format(tmp_path)))
