import csv
from pathlib import Path

import torch

from saas_ssl.algorithm.partially_labelled import PartiallyLabelled
from saas_ssl.runs.labels import write_labels
from saas_ssl.trust.decisions import label_rows


def test_names_survive_the_csv(tmp_path: Path) -> None:
    names = ['a,"quoted"\nname', "ümlaut", "plain"]
    data = PartiallyLabelled(torch.rand(3, 2), torch.tensor([0, -1, -1]), ["x, y", "z"], names)
    f = torch.tensor([[0.3, 0.7], [0.99, 0.01]])
    write_labels(tmp_path / "l.csv", list(label_rows(data, torch.tensor([0, 0]), f)))
    with (tmp_path / "l.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    assert [row[0] for row in rows] == names
    assert rows[0][1:] == ["x, y", "1.0", "given", "accept", "", "0.0", ""]
    assert rows[1][1:] == ["x, y", "0.3", "inferred", "review", "z", "0.7", ""]
    assert rows[2][1:5] == ["x, y", "0.99", "inferred", "accept"]
