from pathlib import Path

import pytest

from report_pages import Made, Page, dot, page_of, some_rows
from saas_ssl.report import write_report


@pytest.mark.parametrize(
    "end", ['{"phase": "one", "outer": 3, "cumul', '{"phase": "one"}\n', "\x00"]
)
def test_metrics_that_are_not_whole(tmp_path: Path, end: str) -> None:
    whole = page_of(tmp_path).source
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(end)
    write_report(tmp_path, Made()._record(some_rows(Made.classes)), dot)
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == whole


def test_a_loss_that_is_no_number_is_left_out(tmp_path: Path) -> None:
    record = Made().write(tmp_path)
    metrics = (tmp_path / "metrics.jsonl").read_text().replace("2.25", "NaN")
    (tmp_path / "metrics.jsonl").write_text(metrics)
    write_report(tmp_path, record, dot)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "outer iteration cumulative loss 1 2.500 3 2.000" in page.text
