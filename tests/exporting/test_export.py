"""`saas export` as a user calls it: real processes, real files, and what it refuses."""

import json
import re
import resource
import shutil
import signal
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from typer.testing import CliRunner

from command import QUICK, Here, saas
from photos import write_photos
from processes import Ended, ended, run_to_end, started, wait_until
from saas_ssl import load
from saas_ssl.commands.app import app
from saas_ssl.exporting import FORMATS, export
from saas_ssl.labelling.request import Request
from saas_ssl.sources.finding import find
from samples import refusal
from small_runs import label, write_features, write_run

DOCUMENT = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
COMMANDS = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on photos, and one on features."""
    folder = tmp_path_factory.mktemp("export")
    write_photos(folder / "photos", n=90, labelled=8)
    done = saas("label", "photos", "--out", "run", *QUICK, cwd=folder)
    assert done.returncode == 0, done.stderr
    write_features(folder / "abc.csv", "abc")
    label(folder / "features", Request(data=str(folder / "abc.csv")))
    return folder


def everything(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def test_the_command_writes_a_program_that_labels_as_the_run_does(
    place: Path, tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "photos.onnx"
    done = saas("export", "run", "--format", "onnx", "--out", str(out), cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"{out} takes images, uint8 (batch, 3, 24, 24), and gives the probabilities of 3 classes "
        "as the model does\n"
    )
    assert list(out.parent.iterdir()) == [out]
    files = sorted((place / "photos" / "unlabeled").iterdir())
    pixels = np.stack([np.asarray(Image.open(file)).transpose(2, 0, 1) for file in files])
    (found,) = onnxruntime.InferenceSession(str(out)).run(None, {"images": pixels})
    np.testing.assert_allclose(found, load(place / "run").predict_proba(files), atol=1e-5)


def test_a_run_on_features(place: Path, tmp_path: Path) -> None:
    export(place / "features", "onnx", tmp_path / "f.onnx")
    x = np.random.default_rng(0).normal(0, 20, (11, 3)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(tmp_path / "f.onnx"))
    (found,) = session.run(None, {"features": x})
    np.testing.assert_allclose(found, load(place / "features").predict_proba(x), atol=1e-5)
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["features"]) == ["a", "b", "c"]
    assert export(place / "features", "csv", tmp_path / "f.csv").startswith("60 labels in ")


def test_quiet_says_nothing(place: Path, tmp_path: Path, saas_here: Here) -> None:
    out = str(tmp_path / "t.csv")
    done = saas_here("export", "run", "--format", "csv", "--out", out, "--quiet", cwd=place)
    assert done == Ended(0, "", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("run keras m.h5", "unknown format 'keras': choose one of onnx, torch, csv, parquet, "),
        ("nowhere csv t.csv", "nowhere is not a finished run: it has no run.json"),
        ("photos onnx m.onnx", "photos is not a finished run: it has no run.json"),
        ("open csv t.csv", "open is not finished: saas status tells where it is"),
        ("open onnx t.onnx", "open is not finished: saas status tells where it is"),
        ("bare onnx m.onnx", "it is not a finished run"),
        ("bare csv t.csv", "bare has no labels.csv"),
        ("strange onnx m.onnx", "a network that is none of ours: give its factory"),
        ("broken csv t.csv", "labels.csv is broken: it is not what saas label writes"),
        ("wrong csv t.csv", "run.json is broken: it is not what saas label writes"),
        ("run onnx m.pt2", "m.pt2 must end in .onnx for onnx"),
        ("run torch m.onnx", "m.onnx must end in .pt2 for torch"),
        ("run csv t.parquet", "t.parquet must end in .csv for csv"),
        ("run csv run.csv", "run.csv is a folder"),
        ("run csv abc.csv", "abc.csv exists: choose another --out, or give --overwrite"),
        ("run csv run/labels.csv --overwrite", "is a file of the run itself, or its data"),
        ("features csv abc.csv --overwrite", "is a file of the run itself, or its data"),
        ("run imagefolder photos", "photos exists: choose another --out, or give --overwrite"),
        ("run imagefolder photos --overwrite", "photos is not what an export has written"),
        ("run imagefolder photos/new", "photos/new would mix with the run or its data"),
        ("run imagefolder x --data else", "else has no blue/0000.png, blue/0003.png, "),
        ("run imagefolder x --data gone", "the data of run are not found (gone does not exist)"),
        ("run onnx m.onnx --input int8", "unknown input 'int8': choose one of uint8, float"),
        ("run csv t.csv --link", "--link is for imagefolder, not for csv"),
        ("run onnx m.onnx --accepted", "--accepted is for csv and parquet and label-studio and"),
        ("run csv t.csv --image-prefix x", "--image-prefix is for label-studio, not for csv"),
        ("features imagefolder x", "features labels features, which are no images"),
        ("features label-studio x.json", "features labels features, which are no images"),
        ("features fiftyone x", "features labels features, which are no images"),
        ("run csv x/y/t.csv --data photos", "--data is for label-studio and fiftyone and"),
        ("run imagefolder x/y/z --data gone", "the data of run are not found"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    arguments: str, sentence: str, wrong: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(wrong)
    run, format_, out, *options = arguments.split()
    given = {"overwrite": "--overwrite" in options, "link": "--link" in options}
    given |= {"accepted": "--accepted" in options}
    texts = {
        name: options[options.index(f"--{name.replace('_', '-')}") + 1]
        for name in ("input", "image_prefix", "data")
        if f"--{name.replace('_', '-')}" in options
    }
    before = everything(wrong)
    assert sentence in refusal(lambda: export(run, format_, out, **given, **texts))  # type: ignore[arg-type]
    assert everything(wrong) == before


@pytest.fixture(scope="module")
def wrong(place: Path) -> Path:
    """Runs that cannot be exported, beside those that can."""
    for name in ("open", "bare", "strange", "broken", "wrong"):
        shutil.copytree(place / "run", place / name)
    record = json.loads((place / "run" / "run.json").read_text())
    (place / "open" / "run.json").write_text(json.dumps(record | {"results": None}))
    for name in ("labels.csv", "model.json", "model.safetensors"):
        (place / "bare" / name).unlink()
    told = json.loads((place / "run" / "model.json").read_text())
    (place / "strange" / "model.json").write_text(json.dumps(told | {"network": None}))
    with (place / "broken" / "labels.csv").open("a") as file:
        file.write("one,cell,0.5\n")
    (place / "wrong" / "run.json").write_text('{"results": {}}')
    (place / "run.csv").mkdir()
    write_photos(place / "else", n=3, labelled=0)
    return place


@pytest.mark.parametrize(
    "line",
    [
        'a.png,purple,0.5,given,accept,"",0.0,""',
        'a.png,red,2,given,accept,"",0.0,""',
        'a.png,red,nan,given,accept,"",0.0,""',
        'a.png,red,,given,accept,"",0.0,""',
        'a.png,red,high,given,accept,"",0.0,""',
        'a.png,red,0.5,given,accept,"",0.0,"",more,and,more',
        '"a.png,red',
        "\udcff",
    ],
)
def test_a_broken_table_is_refused(line: str, place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "run", tmp_path / "run")
    with (tmp_path / "run" / "labels.csv").open("ab") as file:
        file.write(line.encode("utf-8", "surrogateescape") + b"\n")
    assert "labels.csv is broken" in refusal(
        lambda: export(tmp_path / "run", "csv", tmp_path / "t.csv")
    )


def test_the_command_tells_its_refusal_on_stderr(place: Path, tmp_path: Path) -> None:
    done = saas("export", "run", "--format", "keras", "--out", str(tmp_path / "m"), cwd=place)
    assert (done.returncode, done.stdout) == (1, "")
    names = ", ".join(FORMATS)
    assert done.stderr == f"saas: unknown format 'keras': choose one of {names}\n"
    done = saas("export", "run", "--format", "csv", cwd=place)
    assert done.returncode == 2
    assert "--out" in done.stderr


def test_a_file_is_replaced_only_if_asked(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    out.write_text("precious")
    assert "exists" in refusal(lambda: export(place / "run", "csv", out))
    assert out.read_text() == "precious"
    export(place / "run", "csv", out, overwrite=True)
    assert out.read_bytes() == (place / "run" / "labels.csv").read_bytes()
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / "nowhere")
    assert "exists" in refusal(lambda: export(place / "run", "csv", link))


def test_a_folder_is_replaced_only_if_all_of_it_is_an_exports(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    out = tmp_path / "i"
    export("run", "imagefolder", out)
    first = everything(out)
    assert "exists" in refusal(lambda: export("run", "imagefolder", out))
    (out / "red" / "mine.png").write_bytes(b"precious")
    message = refusal(lambda: export("run", "imagefolder", out, overwrite=True))
    assert message == f"{out} holds red/mine.png, which no export has written: move it away first"
    (out / "red" / "mine.png").unlink()
    (out / "linked").symlink_to(tmp_path)
    assert "holds linked" in refusal(lambda: export("run", "imagefolder", out, overwrite=True))
    (out / "linked").unlink()
    export("run", "fiftyone", out, overwrite=True)
    assert {path.name for path in out.iterdir()} == {
        ".saas-export.json",
        "data.json",
        "labels.json",
    }
    export("run", "imagefolder", out, overwrite=True)
    assert everything(out) == first
    (tmp_path / "alias").symlink_to(out)
    assert "is not what an export" in refusal(
        lambda: export("run", "imagefolder", tmp_path / "alias", overwrite=True)
    )
    (out / ".saas-export.json").write_text("[]")
    assert "is not what an export" in refusal(
        lambda: export("run", "imagefolder", out, overwrite=True)
    )
    assert {path.name for path in tmp_path.iterdir()} == {"i", "alias"}


def test_a_folder_that_holds_the_data_is_never_replaced(place: Path, tmp_path: Path) -> None:
    """An export that was labelled itself must survive an export of that run."""
    made = tmp_path / "made"
    export(place / "run", "imagefolder", made, data=str(place / "photos"))
    before = everything(made)
    files = [path.relative_to(made).as_posix() for path in sorted(made.rglob("*.png"))]
    (tmp_path / "list.csv").write_text("path\n" + "\n".join(f"made/{file}" for file in files))
    write_run(tmp_path / "one", made, dict.fromkeys(files, "p"), ["p", "q"])
    listed = {f"made/{file}": "p" for file in files}
    write_run(tmp_path / "two", tmp_path / "list.csv", listed, ["p", "q"])
    for name, sentence in (("one", "would mix with"), ("two", "holds images of the run itself")):
        for link in (False, True):
            message = refusal(
                lambda name=name, link=link: export(  # type: ignore[misc]
                    tmp_path / name, "imagefolder", made, overwrite=True, link=link
                )
            )
            assert sentence in message
            assert everything(made) == before


def no_more_than_a_page() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


@pytest.mark.parametrize("format_", ["onnx", "fiftyone", "label-studio"])
def test_a_full_disk_leaves_nothing(
    format_: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    out = tmp_path / "new" / f"x{FORMATS[format_].suffix or ''}"
    command = ["export", "run", "--format", format_, "--out", str(out)]
    done = run_to_end(*command, cwd=place, prepare=no_more_than_a_page)
    assert done.code == 1
    assert done.errors == "saas: [Errno 27] File too large\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_export_leaves_nothing(
    end: signal.Signals, place: Path, tmp_path: Path
) -> None:
    out = tmp_path / "m.onnx"
    command = ["export", "run", "--format", "onnx", "--out", str(out)]
    with started(*command, cwd=place) as process:
        wait_until(lambda: any(tmp_path.iterdir()), process)
        process.send_signal(end)
        done = ended(process)
    assert done.code == 128 + end
    assert (done.out, done.errors) == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_the_commands_and_the_code_of_the_document_run(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a user types, but for the programs that are not installed here."""
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "photos"
    shutil.copytree(place / "run", run)
    shutil.copytree(place / "photos", tmp_path / "photos")
    shutil.copy(next((place / "photos" / "red").iterdir()), tmp_path / "photo.jpg")
    commands = re.findall(r"^ +\$ saas (export .+)$", DOCUMENT, flags=re.MULTILINE)
    assert len(commands) == len(FORMATS)
    for command in commands:
        done = CliRunner().invoke(app, command.split())
        assert (done.exit_code, done.stderr) == (0, ""), command
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    runnable = [block for block in blocks if "fiftyone" not in block and "torchvision" not in block]
    assert len(runnable) == 5
    for block in runnable:
        exec(block, {})  # noqa: S102  # our own


def test_digits_may_go_into_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", "digits:test", {"7": "7", "1": "1"}, ["1", "7"], (1, 16, 16))
    message = refusal(lambda: export("run", "imagefolder", "digits"))
    assert message.startswith("digits:test has no ")
    known = find("digits:test").ids[:2]
    write_run(tmp_path / "good", "digits:test", dict.fromkeys(known, "7"), ["1", "7"])
    export("good", "imagefolder", "digits")
    assert {path.name for path in Path("digits/7").iterdir()} == {f"{id_}.png" for id_ in known}


def test_every_format_and_option_is_documented() -> None:
    for name, known in FORMATS.items():
        assert f"## {name}\n" in DOCUMENT
        assert f"--format {name} " in DOCUMENT
        assert f"`{name}`" in COMMANDS
        assert known.suffix is None or f"`{known.suffix}`" in COMMANDS
    for option in set[str]().union(*(known.options for known in FORMATS.values())) - {"network"}:
        assert f"--{option.replace('_', '-')}" in DOCUMENT
        assert f"`--{option.replace('_', '-')}" in COMMANDS
