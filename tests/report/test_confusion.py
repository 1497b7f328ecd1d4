from pathlib import Path

import pytest
import torch

from report_pages import Made, inferred_row, page_of
from saas_ssl.report.confusion import expected_confusion, expected_wrong, largest_pairs
from saas_ssl.runs.files import save_tensors
from saas_ssl.trust.decisions import LabelRow


def test_confusion_is_the_sum_of_probabilities(tmp_path: Path) -> None:
    rows = [
        LabelRow("given", "a", 1.0, "given", "accept", "", 0.0),
        *(inferred_row(str(n), "a", 0.75, "b") for n in range(40)),
        *(inferred_row(str(n), "b", 0.9, "a") for n in range(10)),
    ]
    p = torch.tensor([[torch.nan] * 2, *[[0.75, 0.25]] * 40, *[[0.1, 0.9]] * 10])
    page = page_of(tmp_path, Made(classes=("a", "b"), rows=rows, probabilities=p))
    assert "about 11 of 50 inferred labels are expected to be wrong" in page.text
    assert "most often those labelled a that are really b (10)" in page.text
    assert "labelled a, really b 10 labelled b, really a 1.0" in page.text
    assert "a b a 30 10 b 1.0 9.0" in page.text  # the table


def test_confusion_of_many_rows_is_read_in_blocks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    n, K = 3_000, 900  # two and a half blocks
    p = torch.rand(n, K).softmax(dim=1)
    label, given = torch.randint(0, K, (n,)), torch.rand(n) < 0.2
    p[given] = torch.nan
    save_tensors(tmp_path / "posterior.safetensors", {"probabilities": p})
    C = expected_confusion(tmp_path / "posterior.safetensors", label, given, K)
    assert torch.allclose(
        C[label[~given][0]], p[~given & (label == label[~given][0])].double().sum(0)
    )
    assert float(C.sum()) == pytest.approx(int((~given).sum()))
    wrong = (1 - p[~given].double().gather(1, label[~given][:, None])).sum()
    assert expected_wrong(C) == pytest.approx(float(wrong))


def test_the_largest_pairs_come_first_and_the_diagonal_is_none() -> None:
    C = torch.tensor([[50.0, 2.0, 0.4], [3.0, 60.0, 0.1], [0.6, 0.0, 9.0]]).double()
    assert [(pair.label, pair.other) for pair in largest_pairs(C)] == [(1, 0), (0, 1), (2, 0)]
