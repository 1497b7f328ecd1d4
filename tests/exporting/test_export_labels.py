"""Labels as other programs take them: read back by them, or by the rules that they document."""

import base64
import io
import json
import os
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pyarrow.parquet as pq
import pytest
from cleanlab.filter import find_label_issues
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import load_file, save_file

from command import QUICK, rows_of, saas
from photos import CLASSES, write_photos
from saas_ssl import read
from saas_ssl.exporting import export
from saas_ssl.exporting.annotations import labelling_interface
from saas_ssl.exporting.names import class_folders, free_name_in, safe_name
from samples import noise, refusal, write_hugging_face, write_plain
from small_runs import write_run


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos, and a real run on them that named them by a relative path."""
    folder = tmp_path_factory.mktemp("export labels")
    write_photos(folder / "photos", n=120, labelled=20)
    done = saas("label", "photos", "--out", "run", *QUICK, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    return place


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def test_csv_is_the_table_of_the_run(here: Path, tmp_path: Path) -> None:
    told = export("run", "csv", tmp_path / "deep" / "all.csv")
    assert told == f"120 labels in {tmp_path / 'deep' / 'all.csv'}"
    assert (tmp_path / "deep" / "all.csv").read_bytes() == Path("run/labels.csv").read_bytes()
    export("run", "csv", tmp_path / "some.csv", accepted=True)
    accepted = [row for row in rows_of(here / "run/labels.csv") if row["decision"] == "accept"]
    assert len(accepted) >= 60
    assert rows_of(tmp_path / "some.csv") == accepted


def test_accepted_leaves_out_the_others(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run",
        "x",
        {"a": "p", "b": "q", "c": "q"},
        ["p", "q"],
        given_ids=["c"],
        review=["b", "c"],
    )
    export(run, "csv", tmp_path / "t.csv", accepted=True)
    assert [row["id"] for row in rows_of(tmp_path / "t.csv")] == ["a"]


def test_parquet_is_the_same_with_numbers(here: Path, tmp_path: Path) -> None:
    export("run", "parquet", tmp_path / "t.parquet")
    table, rows = pq.read_table(tmp_path / "t.parquet"), rows_of(here / "run" / "labels.csv")
    assert table.column_names == list(rows[0])
    for name in table.column_names:
        is_number = name.endswith("probability")
        assert str(table.schema.field(name).type) == ("double" if is_number else "string")
        cells = [row[name] for row in rows]
        assert table[name].to_pylist() == ([float(cell) for cell in cells] if is_number else cells)


def check_label_studio(tasks: list[dict[str, Any]], interface: str) -> None:
    """Label Studio's "Basic JSON format": what its guides to importing and predictions ask for."""
    view = ET.fromstring(interface)  # noqa: S314  # our own
    image, choices = view.findall("Image")[0], view.findall("Choices")[0]
    assert choices.get("toName") == image.get("name")
    known = {choice.get("value") for choice in choices}
    assert isinstance(tasks, list)
    for task in tasks:
        assert set(task) <= {"data", "annotations", "predictions"}
        assert isinstance(task["data"][str(image.get("value")).removeprefix("$")], str)
        answers = task.get("annotations", []) + task.get("predictions", [])
        assert len(answers) == 1
        for prediction in task.get("predictions", []):
            assert isinstance(prediction["model_version"], str)
            assert 0.0 <= prediction["score"] <= 1.0
        for answer in answers:
            (region,) = answer["result"]
            assert region["type"] == "choices"
            assert region["from_name"] == choices.get("name")
            assert region["to_name"] == image.get("name")
            (choice,) = region["value"]["choices"]
            assert choice in known


def test_label_studio_gets_a_task_for_each_row(here: Path, tmp_path: Path) -> None:
    told = export("run", "label-studio", tmp_path / "tasks.json")
    first, _, interface = told.partition("\n")
    assert first == (
        f"120 tasks in {tmp_path / 'tasks.json'}; the images are below "
        f"LOCAL_FILES_DOCUMENT_ROOT={here}. The labelling interface:"
    )
    assert interface == labelling_interface(CLASSES)
    tasks = json.loads((tmp_path / "tasks.json").read_text(encoding="utf-8"))
    check_label_studio(tasks, interface)
    rows = rows_of(here / "run" / "labels.csv")
    for task, row in zip(tasks, rows, strict=True):
        kind = "annotations" if row["source"] == "given" else "predictions"
        assert set(task) == {"data", kind}
        (answer,) = task[kind]
        assert answer["result"][0]["value"] == {"choices": [row["label"]]}
        assert task["data"]["id"] == row["id"]
        assert task["data"]["decision"] == row["decision"]
        assert task["data"]["probability"] == float(row["probability"])
        if kind == "predictions":
            assert answer["score"] == float(row["probability"])
        url = urlsplit(task["data"]["image"])
        assert url.path == "/data/local-files/"
        assert (here / parse_qs(url.query)["d"][0]).samefile(here / "photos" / row["id"])


def test_label_studio_with_a_server_of_ones_own(tmp_path: Path) -> None:
    ids = ["a b/50% & more.png", "é#1.png"]
    write_plain(tmp_path / "x", dict.fromkeys(ids, 7))
    run = write_run(tmp_path / "run", tmp_path / "x", dict.fromkeys(ids, 'p"<q>'), ['p"<q>', "r"])
    told = export(run, "label-studio", tmp_path / "t.json", image_prefix="https://host/x/")
    assert "LOCAL_FILES" not in told
    tasks = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    check_label_studio(tasks, told.partition("\n")[2])
    assert [task["data"]["image"] for task in tasks] == [
        "https://host/x/a%20b/50%25%20%26%20more.png",
        "https://host/x/%C3%A9%231.png",
    ]


def test_label_studio_gets_images_that_are_no_files_in_the_tasks(tmp_path: Path) -> None:
    x = noise(3, 8, 8)
    np.savez(tmp_path / "x.npz", x=x)
    run = write_run(tmp_path / "run", tmp_path / "x.npz", dict.fromkeys("021", "p"), ["p", "q"])
    export(run, "label-studio", tmp_path / "t.json")
    tasks = json.loads((tmp_path / "t.json").read_text())
    for task, row in zip(tasks, (0, 2, 1), strict=True):
        kind, _, text = task["data"]["image"].partition(",")
        assert kind == "data:image/png;base64"
        image = Image.open(io.BytesIO(base64.b64decode(text)))
        np.testing.assert_array_equal(np.asarray(image), x[row])


def from_fiftyone(folder: Path) -> list[tuple[str, str, float, dict[str, Any]]]:
    """The samples as FiftyOne's importer for this type finds them, with data_path="data.json".

    Keys of the manifest lose their endings, its paths are relative to it, and a number as a label
    is that of a class.
    """
    manifest = json.loads((folder / "data.json").read_text(encoding="utf-8"))
    places = {os.path.splitext(key)[0]: folder / value for key, value in manifest.items()}
    assert len(places) == len(manifest)
    told = json.loads((folder / "labels.json").read_text(encoding="utf-8"))
    assert set(told) == {"classes", "labels"}
    for target in told["labels"].values():
        assert not {"id", "label", "confidence", "tags"} & set(target["attributes"])
    return [
        (
            str(places[key]),
            told["classes"][target["label"]],
            target["confidence"],
            target["attributes"],
        )
        for key, target in sorted(told["labels"].items())
    ]


def test_fiftyone_finds_the_images_where_they_are(here: Path, tmp_path: Path) -> None:
    assert export("run", "fiftyone", tmp_path / "f") == f"120 samples in {tmp_path / 'f'}"
    assert set(files_of(tmp_path / "f")) == {"data.json", "labels.json"}
    rows = rows_of(here / "run" / "labels.csv")
    for sample, row in zip(from_fiftyone(tmp_path / "f"), rows, strict=True):
        path, label, confidence, attributes = sample
        assert os.path.isabs(path)
        assert Path(path).samefile(here / "photos" / row["id"])
        assert (label, confidence) == (row["label"], float(row["probability"]))
        for name in ("source", "decision"):
            assert attributes[name] == row[name]
        assert attributes["row_id"] == row["id"]


def test_fiftyone_gets_images_that_are_no_files(tmp_path: Path) -> None:
    images = [noise(8, 8, seed=n) for n in range(2)]
    data = [io.BytesIO(), io.BytesIO()]
    Image.fromarray(images[0]).save(data[0], "PNG")
    Image.fromarray(images[1]).save(data[1], "JPEG")
    source = write_hugging_face(tmp_path / "x.parquet", [b.getvalue() for b in data], [0, 0])
    run = write_run(tmp_path / "run", source, {"0": "p", "1": "q"}, ["p", "q"])
    export(run, "fiftyone", tmp_path / "f")
    shutil.move(tmp_path / "f", tmp_path / "moved")
    samples = from_fiftyone(tmp_path / "moved")
    assert [Path(path).read_bytes() for path, *_ in samples] == [b.getvalue() for b in data]
    assert [Path(path).suffix for path, *_ in samples] == [".png", ".jpeg"]
    assert [label for _, label, *_ in samples] == ["p", "q"]


def test_cleanlab_gets_what_the_run_found(here: Path, tmp_path: Path) -> None:
    export("run", "cleanlab", tmp_path / "c")
    f, rows = (
        load_file("run/posterior.safetensors")["probabilities"],
        rows_of(here / "run/labels.csv"),
    )
    places = {row["id"]: n for n, row in enumerate(rows)}
    kept = [places[row["id"]] for row in rows_of(tmp_path / "c" / "ids.csv")]
    assert {rows[n]["source"] for n in kept} == {"given"}
    assert set(kept) == {n for n, row in enumerate(rows) if row["source"] == "given"} - set(
        np.flatnonzero(np.isnan(f).any(axis=1)).tolist()
    )
    f_given = np.load(tmp_path / "c" / "pred_probs.npy")
    np.testing.assert_array_equal(f_given, f[kept])
    find_label_issues(np.load(tmp_path / "c" / "labels.npy"), f_given, n_jobs=1)


def test_cleanlab_finds_a_planted_wrong_label(here: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree("run", run)
    rows = rows_of(run / "labels.csv")
    given = [n for n, row in enumerate(rows) if row["source"] == "given"]
    # Made up, so that which label looks wrong is certain.
    rng, posterior = np.random.default_rng(0), load_file(run / "posterior.safetensors")
    f = np.full((len(rows), 3), 1 / 3, np.float32)  # of inferred rows, which are not exported
    f[given] = np.nan
    for n in given[1:]:  # the first was never held out
        f[n] = rng.dirichlet([1, 1, 1]) * 0.2
        f[n, CLASSES.index(rows[n]["label"])] += 0.8
    wrong = given[7]
    f[wrong] = np.roll(np.eye(3)[CLASSES.index(rows[wrong]["label"])], 1)
    save_file({**posterior, "probabilities": f}, run / "posterior.safetensors")
    told = export(run, "cleanlab", tmp_path / "c")
    assert told == f"59 given labels in {tmp_path / 'c'}; 1 other never held out"
    labels, f_given = np.load(tmp_path / "c/labels.npy"), np.load(tmp_path / "c/pred_probs.npy")
    assert (labels.dtype, labels.shape, f_given.shape) == (np.int64, (59,), (59, 3))
    ids = [row["id"] for row in rows_of(tmp_path / "c" / "ids.csv")]
    assert ids == [rows[n]["id"] for n in given[1:]]
    classes = json.loads((tmp_path / "c" / "classes.json").read_text())
    assert [classes[k] for k in labels] == [rows[n]["label"] for n in given[1:]]
    issues = find_label_issues(labels, f_given, n_jobs=1)
    assert [ids[n] for n in np.flatnonzero(issues)] == [rows[wrong]["id"]]

    save_file(
        {**posterior, "probabilities": np.full_like(f, np.nan)}, run / "posterior.safetensors"
    )
    assert "no given label of" in refusal(lambda: export(run, "cleanlab", tmp_path / "d"))
    save_file({**posterior, "probabilities": f[1:]}, run / "posterior.safetensors")
    assert "does not fit" in refusal(lambda: export(run, "cleanlab", tmp_path / "d"))
    save_file({"P_u": f}, run / "posterior.safetensors")
    assert "has no probabilities" in refusal(lambda: export(run, "cleanlab", tmp_path / "d"))
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("link", [False, True])
def test_an_image_folder_is_read_back(link: bool, here: Path, tmp_path: Path) -> None:
    told = export("run", "imagefolder", tmp_path / "i", link=link)
    assert told == f"120 images in 3 folders of {tmp_path / 'i'}"
    rows = rows_of(here / "run" / "labels.csv")
    data = read(tmp_path / "i")  # a warning would be an error here
    assert list(data.classes) == list(CLASSES)
    found = {
        os.path.basename(id_): data.classes[k]
        for id_, k in zip(data.ids, data.y.tolist(), strict=True)
    }
    assert found == {os.path.basename(row["id"]): row["label"] for row in rows}
    for row in rows:
        image = tmp_path / "i" / row["label"] / os.path.basename(row["id"])
        assert image.read_bytes() == (here / "photos" / row["id"]).read_bytes()
        assert image.is_symlink() == link


def test_names_in_an_image_folder_never_collide_or_escape(tmp_path: Path) -> None:
    images = {"a/1.png": 10, "b/1.png": 20, "b/1-2.png": 30, "c/1.PNG": 40, "d/x.png": 50}
    classes = ["..", "../../up", "a/b", "", ".hidden", "Cat", "cat", "unlabeled", "x\0y", "n" * 300]
    images |= {f"{n}/one.png": 100 + n for n in range(len(classes))}
    write_plain(tmp_path / "x", images)
    labels = dict.fromkeys(images, "cat")
    labels |= {f"{n}/one.png": name for n, name in enumerate(classes)}
    run = write_run(tmp_path / "run", tmp_path / "x", labels, classes)
    before = {path for path in tmp_path.rglob("*") if "i" not in path.relative_to(tmp_path).parts}
    told = export(run, "imagefolder", tmp_path / "deep" / "i")
    assert told.endswith("; classes.json says which class each is")
    after = {path for path in tmp_path.rglob("*") if "deep" not in path.parts}
    assert after == before
    data = read_quietly(tmp_path / "deep" / "i")
    folders = json.loads((tmp_path / "deep" / "i" / "classes.json").read_text())
    assert sorted(folders.values()) == sorted(classes)
    value = {int(data.x[row].max()): data.classes[k] for row, k in enumerate(data.y.tolist())}
    assert {n: folders[name] for n, name in value.items()} == {
        n: labels[id_] for id_, n in images.items()
    }
    assert {id_ for id_ in data.ids if id_.startswith("cat")} == {
        f"cat-2/{name}" for name in ("1.png", "1-2.png", "1-3.png", "1-4.PNG", "x.png", "one.png")
    }


def read_quietly(folder: Path) -> Any:
    """What `read` gives; it warns that classes.json is no image."""
    with pytest.warns(UserWarning, match=r"1 file skipped; the first is classes\.json"):
        return read(folder)


def test_rows_that_are_no_files_become_images(tmp_path: Path) -> None:
    x = noise(4, 9, 8, 3)
    np.savez(tmp_path / "x.npz", x=x, ids=np.array(["../up", "b/same", "c/same", ""]))
    labels = {"../up": "p", "b/same": "q", "c/same": "q", "": "q"}
    run = write_run(tmp_path / "run", tmp_path / "x.npz", labels, ["p", "q"], (3, 9, 8))
    export(run, "imagefolder", tmp_path / "i")
    assert set(files_of(tmp_path / "i")) == {"p/up.png", "q/same.png", "q/same-2.png", "q/_.png"}
    data = read(tmp_path / "i")
    by_id = dict(zip(data.ids, data.x.numpy(), strict=True))
    for id_, row in (("p/up.png", 0), ("q/same.png", 1), ("q/same-2.png", 2), ("q/_.png", 3)):
        np.testing.assert_array_equal(by_id[id_], x[row].transpose(2, 0, 1))
    message = refusal(lambda: export(run, "imagefolder", tmp_path / "l", link=True))
    assert message == "these images are not files that could be linked to: leave out --link"
    assert not list(tmp_path.glob("*l*.partial*"))


def test_a_list_of_paths_may_name_files_anywhere(tmp_path: Path) -> None:
    write_plain(tmp_path / "one", {"1.png": 10})
    write_plain(tmp_path / "two", {"1.png": 20})
    (tmp_path / "lists").mkdir()
    table = tmp_path / "lists" / "x.csv"
    absolute = str(tmp_path / "two" / "1.png")
    table.write_text(f"path,label\n../one/1.png,p\n{absolute},\n")
    run = write_run(tmp_path / "run", table, {"../one/1.png": "p", absolute: "p"}, ["p", "q"])
    export(run, "imagefolder", tmp_path / "i")
    assert set(files_of(tmp_path / "i")) == {"p/1.png", "p/1-2.png"}
    told = export(run, "label-studio", tmp_path / "t.json")
    tasks = json.loads((tmp_path / "t.json").read_text())
    root = Path(told.partition("LOCAL_FILES_DOCUMENT_ROOT=")[2].partition(". The")[0])
    found = [root / parse_qs(urlsplit(t["data"]["image"]).query)["d"][0] for t in tasks]
    assert [path.read_bytes() for path in found] == [
        (tmp_path / name / "1.png").read_bytes() for name in ("one", "two")
    ]


@given(st.lists(st.text(max_size=140), unique=True, min_size=1, max_size=6))
def test_every_class_has_a_folder_of_its_own_that_is_safe(classes: list[str]) -> None:
    folders = class_folders(classes)
    assert list(folders) == classes
    assert len({name.casefold() for name in folders.values()}) == len(classes)
    for folder in folders.values():
        assert os.path.basename(folder) == folder
        assert folder.strip(" .") == folder != ""
        assert len(folder.encode()) < 200
        assert folder.isprintable() or not folder.isascii()
        assert folder.casefold() not in ("unlabeled", "unlabelled", "con", "nul")


def test_ordinary_names_stay_as_they_are() -> None:
    for name in ("red", "Wild cat", "50%", "a.b-c_d", "été", "猫", "0"):
        assert safe_name(name) == name
    assert safe_name("../x") == "%2E.%2Fx"
    assert safe_name("COM1.txt") == "COM1.txt_"
    assert class_folders(["A", "a", "a-2"]) == {"A": "A", "a": "a-2", "a-2": "a-2-2"}
    taken = dict[str, int]()
    names = [free_name_in(taken, "x.png") for _ in range(3000)]
    assert names[:3] == ["x.png", "x-2.png", "x-3.png"]
    assert len(set(names)) == 3000
