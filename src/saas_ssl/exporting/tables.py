"""Labels as tables: CSV, parquet, and the arrays that cleanlab takes."""

import csv
import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from saas_ssl.exporting.asked import Asked
from saas_ssl.runs.files import POSTERIOR_FILE
from saas_ssl.runs.finished import NUMBERS, read_labels
from saas_ssl.runs.tables import need_pyarrow, write_parquet
from saas_ssl.sources.wording import counted

_PROBABILITIES = "probabilities"


def write_csv(asked: Asked, file: Path) -> str:
    """The columns of labels.csv."""
    labels = read_labels(asked.run, asked.data, asked.accepted)
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, labels.columns)
        writer.writeheader()
        writer.writerows(labels.rows)
    return f"{counted(len(labels.rows), 'label')} in {asked.out}"


def write_parquet_table(asked: Asked, file: Path) -> str:
    """The columns of labels.csv: probabilities as numbers, the others as text."""
    need_pyarrow()
    labels = read_labels(asked.run, asked.data, asked.accepted)
    kinds = {name: float if name in NUMBERS else str for name in labels.columns}
    write_parquet(file, kinds, ([row[name] for name in kinds] for row in labels.rows))
    return f"{counted(len(labels.rows), 'label')} in {asked.out}"


def write_cleanlab(asked: Asked, folder: Path) -> str:
    """The given labels and their probabilities by networks that had not seen them."""
    labels = read_labels(asked.run, asked.data, asked.accepted)
    path = asked.run / POSTERIOR_FILE
    try:
        f = load_file(path).get(_PROBABILITIES)
    except (SafetensorError, FileNotFoundError):
        f = None
    if f is None:
        raise ValueError(f"{path} has no probabilities of the given labels")
    if f.shape != (len(labels.rows), len(labels.classes)):
        raise ValueError(f"{path} is broken: it does not fit the labels of the run")
    given = np.array([row["source"] == "given" for row in labels.rows])
    kept = np.flatnonzero(given & np.isfinite(f).all(axis=1)).tolist()
    if not kept:
        raise ValueError(
            f"no given label of {asked.run} was held out, so none has a probability by a network "
            "that had not seen it: cleanlab has nothing to judge"
        )
    number = {name: k for k, name in enumerate(labels.classes)}
    y = np.array([number[labels.rows[row]["label"]] for row in kept], np.int64)
    np.save(folder / "pred_probs.npy", f[kept], allow_pickle=False)
    np.save(folder / "labels.npy", y, allow_pickle=False)
    with (folder / "ids.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id"])
        writer.writerows([labels.rows[row]["id"]] for row in kept)
    names = json.dumps(list(labels.classes), ensure_ascii=False)
    (folder / "classes.json").write_text(names + "\n", encoding="utf-8")
    left_out = int(given.sum()) - len(kept)
    more = f"; {counted(left_out, 'other')} never held out" if left_out else ""
    return f"{counted(len(kept), 'given label')} in {asked.out}{more}"
