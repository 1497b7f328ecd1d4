"""Labels for programs in which people look at images: Label Studio and FiftyOne."""

import base64
import json
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from saas_ssl.exporting.asked import Asked
from saas_ssl.exporting.pictures import Picture, find_pictures, kind_of
from saas_ssl.runs.finished import Labels, read_labels
from saas_ssl.sources.wording import counted

LOCAL_FILES = "/data/local-files/?d="
"""Before the path of an image from LOCAL_FILES_DOCUMENT_ROOT, by Label Studio's convention."""


def write_label_studio(asked: Asked, file: Path) -> str:
    """One task per row: given labels as annotations, inferred ones as predictions."""
    labels = read_labels(asked.run, asked.data, asked.accepted)
    pictures = dict(find_pictures(labels))
    files = [picture for picture in pictures.values() if isinstance(picture, Path)]
    root = _folder_of(labels, files) if files else None
    prefix = asked.image_prefix
    if prefix is None:
        prefix = LOCAL_FILES if root is None else f"{LOCAL_FILES}{quote(root.name)}/"
    model = f"saas-ssl {version('saas-ssl')}"
    tasks = [
        _task(row, _reference(pictures[place], root, prefix), model, place)
        for place, row in enumerate(labels.rows)
    ]
    file.write_text(json.dumps(tasks, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    done = f"{counted(len(tasks), 'task')} in {asked.out}"
    if root is not None and asked.image_prefix is None:
        done += f"; the images are below LOCAL_FILES_DOCUMENT_ROOT={root.parent}"
    return f"{done}. The labelling interface:\n{labelling_interface(labels.classes)}"


def labelling_interface(classes: Sequence[str]) -> str:
    """The XML that Label Studio asks for, to which the tasks belong."""
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in classes)
    return (
        '<View>\n  <Image name="image" value="$image"/>\n'
        f'  <Choices name="label" toName="image" choice="single">\n{choices}\n  </Choices>\n</View>'
    )


def _task(row: Mapping[str, Any], image: str, model: str, place: int) -> dict[str, Any]:
    result = [
        {
            "id": f"label-{place}",
            "from_name": "label",
            "to_name": "image",
            "type": "choices",
            "value": {"choices": [row["label"]]},
        }
    ]
    told = {name: value for name, value in row.items() if name != "label"}
    task: dict[str, Any] = {"data": {"image": image, **told}}
    if row["source"] == "given":
        return task | {"annotations": [{"result": result}]}
    prediction = {"model_version": model, "score": row["probability"], "result": result}
    return task | {"predictions": [prediction]}


def _reference(picture: Picture, root: Path | None, prefix: str) -> str:
    if isinstance(picture, bytes) or root is None:
        data = picture if isinstance(picture, bytes) else picture.read_bytes()
        return f"data:image/{kind_of(data)};base64,{base64.b64encode(data).decode()}"
    return prefix + quote(Path(os.path.relpath(picture, root)).as_posix())


def _folder_of(labels: Labels, files: Sequence[Path]) -> Path:
    """The data's own folder; of a list of files the one that holds them all."""
    given = Path(os.path.abspath(os.path.expanduser(labels.data)))
    if given.is_dir():
        return given
    return Path(os.path.commonpath([os.path.dirname(os.path.abspath(file)) for file in files]))


def write_fiftyone(asked: Asked, folder: Path) -> str:
    """labels.json, and data.json with the places of the images; only images without files are here.

    Samples are known by the number of their row: names may be alike but for folder or ending, which
    FiftyOne does not tell apart.
    """
    labels = read_labels(asked.run, asked.data, asked.accepted)
    number = {name: k for k, name in enumerate(labels.classes)}
    data, found = dict[str, str](), dict[str, Any]()
    for place, picture in find_pictures(labels):
        key, row = f"{place:07}", labels.rows[place]
        if isinstance(picture, Path):
            data[key] = os.path.abspath(picture)
        else:
            (folder / "data").mkdir(exist_ok=True)
            data[key] = f"data/{key}.{kind_of(picture)}"
            (folder / data[key]).write_bytes(picture)
        attributes = {
            "row_id" if name == "id" else name: value  # FiftyOne has ids of its own
            for name, value in row.items()
            if name not in ("label", "probability")
        }
        found[key] = {
            "label": number[row["label"]],
            "confidence": row["probability"],
            "attributes": attributes,
        }
    for name, content in (
        ("labels.json", {"classes": list(labels.classes), "labels": found}),
        ("data.json", data),
    ):
        text = json.dumps(content, ensure_ascii=False, indent=1)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    return f"{counted(len(found), 'sample')} in {asked.out}"
