"""find(spec): the rows that a spec names, and their labels; nothing is decoded yet."""

import os
from pathlib import Path

from saas_ssl.sources.cifar10 import find_cifar10
from saas_ssl.sources.digits import find_digits
from saas_ssl.sources.features import find_csv
from saas_ssl.sources.folders import find_folder, has_images
from saas_ssl.sources.idx import find_idx
from saas_ssl.sources.label_files import relabelled
from saas_ssl.sources.npz import find_npz
from saas_ssl.sources.parquet import find_parquet, one_split
from saas_ssl.sources.source import Source
from saas_ssl.sources.svhn import find_svhn

ARCHIVES = {"idx": find_idx, "cifar10": find_cifar10, "svhn": find_svhn}
"""Folders of well-known files, which are named KIND:DIR or KIND:DIR:PART."""


def find(spec: str, labels: Path | None = None) -> Source:
    """The rows that a spec names, and their labels; nothing is decoded yet."""
    if not spec:
        raise ValueError("the name of the data is empty")
    path = Path(spec).expanduser()
    if labels is None:
        return _find(spec, path)
    if os.path.isdir(path) and has_images(path):
        return find_folder(path, labels)
    return relabelled(_find(spec, path), labels)


def _find(spec: str, path: Path) -> Source:
    """The rows with the labels that are their own."""
    kind, colon, rest = spec.partition(":")
    if kind == "digits":
        return find_digits(rest)
    if colon and kind in ARCHIVES:
        rest = os.path.expanduser(rest)
        if os.path.exists(rest) or ":" not in rest:  # its name may hold a colon
            return ARCHIVES[kind](Path(rest))
        place, _, part = rest.rpartition(":")
        return ARCHIVES[kind](Path(place), part)
    if os.path.isdir(path):  # Path.is_dir raises for names that are too long
        tables = sorted(path.glob("*.parquet"))
        if tables and not has_images(path):
            return find_parquet(one_split(tables, path))
        return find_folder(path)
    if "*" in path.name and path.suffix == ".parquet":
        tables = sorted(path.parent.glob(path.name))
        if tables:
            return find_parquet(tables)
    if not os.path.exists(path):
        raise ValueError(f"{spec} does not exist")
    if path.suffix.lower() in (".csv", ".tsv", ".txt"):
        return find_csv(path)
    if path.suffix.lower() == ".npz":
        return find_npz(path)
    if path.suffix.lower() == ".parquet":
        return find_parquet([path])
    raise ValueError(
        f"{spec} is no kind of data that is known: a folder, .csv, .npz or .parquet, "
        "idx:DIR, cifar10:DIR, svhn:DIR or digits"
    )
