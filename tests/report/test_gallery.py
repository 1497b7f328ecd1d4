from pathlib import Path

from report_pages import dot, page_of
from saas_ssl.report.gallery import LARGEST_PICTURE


def test_a_picture_that_is_too_large_is_left_out(tmp_path: Path) -> None:
    page = page_of(tmp_path, thumbnail=lambda _row: (bytes(LARGEST_PICTURE + 1), "image/png"))
    assert page.values("src") == []
    assert "row 200.png" in page.text


def test_pictures_that_cannot_be_had(tmp_path: Path) -> None:
    page = page_of(tmp_path, thumbnail=lambda _row: None)
    assert page.values("src") == []
    for name in ("row 100.png", "row 200.png", "row 300.png", "row 400.png"):
        assert name in page.text
    some = page_of(tmp_path, thumbnail=lambda row: None if row == 40 else dot(row))
    assert some.text.count("no picture") == 1
