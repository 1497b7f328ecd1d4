"""`saas export`: one format of a finished run, checked, then written whole or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from saas_ssl.exporting.annotations import write_fiftyone, write_label_studio
from saas_ssl.exporting.asked import Asked
from saas_ssl.exporting.folders import write_imagefolder
from saas_ssl.exporting.programs import write_onnx, write_torch
from saas_ssl.exporting.tables import write_cleanlab, write_csv, write_parquet_table
from saas_ssl.exporting.target import check_file, check_folder, new_file, new_folder
from saas_ssl.runs.finished import check_finished, protected_files
from saas_ssl.vision.networks import NetworkFactory


class Format(NamedTuple):
    """How one format is written."""

    write: Callable[[Asked, Path], str]  # to this place; says what was written
    suffix: str | None  # of its file; none: it is a folder
    options: frozenset[str]  # those that it takes


_MODEL = frozenset({"input", "network"})
_IMAGES = frozenset({"accepted", "data"})
FORMATS: dict[str, Format] = {
    "onnx": Format(write_onnx, ".onnx", _MODEL),
    "torch": Format(write_torch, ".pt2", _MODEL),
    "csv": Format(write_csv, ".csv", frozenset({"accepted"})),
    "parquet": Format(write_parquet_table, ".parquet", frozenset({"accepted"})),
    "label-studio": Format(write_label_studio, ".json", _IMAGES | {"image_prefix"}),
    "fiftyone": Format(write_fiftyone, None, _IMAGES),
    "cleanlab": Format(write_cleanlab, None, frozenset()),
    "imagefolder": Format(write_imagefolder, None, _IMAGES | {"link"}),
}


def export(
    run: str | Path,
    format: str,
    out: str | Path,
    *,
    overwrite: bool = False,
    input: str | None = None,
    accepted: bool = False,
    link: bool = False,
    image_prefix: str | None = None,
    data: str | None = None,
    network: NetworkFactory | None = None,
) -> str:
    """Write a finished run in one of `FORMATS`, and return what was written, in plain words.

    `input` is what an onnx or torch program takes, uint8 or float. `accepted` leaves out labels
    that want a review. `link` links to images instead of copying them, `image_prefix` stands before
    their paths for Label Studio, and `data` is where they are now, if not where the run found them.
    `network` is the factory of a network that is none of ours.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}: choose one of {', '.join(FORMATS)}")
    chosen = FORMATS[format]
    asked = Asked(Path(run), Path(out), input, accepted, link, image_prefix, data, network)
    for option in ("input", "accepted", "link", "image_prefix", "data", "network"):
        if getattr(asked, option) and option not in chosen.options:
            suited = [name for name, other in FORMATS.items() if option in other.options]
            raise ValueError(
                f"--{option.replace('_', '-')} is for {' and '.join(suited)}, not for {format}"
            )
    check_finished(asked.run, labels=format not in ("onnx", "torch"))
    protected = protected_files(asked.run, asked.data)
    if chosen.suffix is None:
        check_folder(asked.out, overwrite)
        with new_folder(asked.out, protected) as folder:
            return chosen.write(asked, folder)
    check_file(asked.out, chosen.suffix, format, overwrite, protected)
    with new_file(asked.out) as file:
        return chosen.write(asked, file)
