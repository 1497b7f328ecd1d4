"""A folder of images for each class, as training programs read them."""

import json
import os
import shutil
from pathlib import Path

from saas_ssl.exporting.asked import Asked
from saas_ssl.exporting.names import class_folders, free_name_in, safe_name
from saas_ssl.exporting.pictures import Picture, find_pictures, kind_of
from saas_ssl.runs.finished import read_labels
from saas_ssl.sources.wording import counted


def write_imagefolder(asked: Asked, folder: Path) -> str:
    """Copies of the images, or links to them, each in the folder of its class."""
    labels = read_labels(asked.run, asked.data, asked.accepted)
    folders = class_folders(labels.classes)
    taken: dict[str, dict[str, int]] = {name: {} for name in folders.values()}
    used = set[str]()
    for place, picture in find_pictures(labels):
        row = labels.rows[place]
        name = folders[row["label"]]
        if name not in used:
            (folder / name).mkdir()
            used.add(name)
        target = folder / name / free_name_in(taken[name], _file_name(row["id"], picture))
        _put(picture, target, asked)
    renamed = {safe: name for name, safe in folders.items() if safe != name}
    if renamed:
        text = json.dumps({safe: name for name, safe in folders.items()}, indent=2)
        (folder / "classes.json").write_text(text + "\n", encoding="utf-8")
    where = f"{counted(len(labels.rows), 'image')} in {counted(len(used), 'folder')} of {asked.out}"
    return f"{where}; classes.json says which class each is" if renamed else where


def _file_name(id_: str, picture: Picture) -> str:
    if isinstance(picture, Path):
        return safe_name(picture.stem) + picture.suffix
    stem = os.path.splitext(os.path.basename(id_))[0]
    return f"{safe_name(stem)}.{kind_of(picture)}"


def _put(picture: Picture, target: Path, asked: Asked) -> None:
    if isinstance(picture, bytes):
        if asked.link:
            raise ValueError("these images are not files that could be linked to: leave out --link")
        target.write_bytes(picture)
        return
    if asked.out.resolve() in picture.resolve().parents:
        raise ValueError(f"{asked.out} holds images of the run itself: choose another --out")
    if asked.link:
        target.symlink_to(os.path.abspath(picture))
    else:
        shutil.copyfile(picture, target)
