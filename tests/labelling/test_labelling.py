"""What `saas label` and `saas predict` do, called as functions."""

import csv
import json
from pathlib import Path

import pytest
from rich.console import Console

from photos import write_photos
from saas_ssl.labelling.predicting import predict_into
from saas_ssl.labelling.request import Request
from saas_ssl.labelling.task import ask
from saas_ssl.training.choosing import setting
from saas_ssl.trust.judging import Scrutiny
from small_runs import label, write_features


def predictions(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return [row["label"] for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("features")
    write_features(folder / "abc.csv", "abc", n=200, labelled=100)
    label(
        folder / "run", Request(data=str(folder / "abc.csv")), inner_epochs=10, classifier_epochs=30
    )
    return folder / "run"


def test_features_are_known_by_their_names(trained: Path, tmp_path: Path) -> None:
    assert json.loads((trained / "model.json").read_text())["features"] == ["a", "b", "c"]
    for names in ("abc", "cab"):
        write_features(tmp_path / f"{names}.csv", names, labelled=60, seed=1)
        out = tmp_path / f"out-{names}.csv"
        predict_into(
            str(trained), str(tmp_path / f"{names}.csv"), str(out), False, Console(quiet=True)
        )
    assert predictions(tmp_path / "out-abc.csv") == predictions(tmp_path / "out-cab.csv")
    write_features(tmp_path / "ab.csv", "ab")
    with pytest.raises(ValueError, match="these data have no feature c"):
        predict_into(
            str(trained),
            str(tmp_path / "ab.csv"),
            str(tmp_path / "no.csv"),
            False,
            Console(quiet=True),
        )
    assert not (tmp_path / "no.csv").exists()


def test_rows_with_nan_are_skipped(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,a,b,c\nu,1,2,3\nv,nan,2,3\nw,-1,2,3\n")
    out = tmp_path / "out.csv"
    predict_into(str(trained), str(tmp_path / "x.csv"), str(out), False, Console(quiet=True))
    with out.open(newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == ["u", "w"]
    assert (tmp_path / "out.skipped.csv").read_text().split() == [
        "id,reason",
        *["v,it", "has", "NaN", "or", "infinite", "values"],
    ]


def test_test_data_are_put_into_the_order_of_the_data(tmp_path: Path) -> None:
    write_features(tmp_path / "abc.csv", "abc")
    write_features(tmp_path / "cba.csv", "cba", labelled=60)
    write_features(tmp_path / "same.csv", "abc", labelled=60)
    errors = []
    for test in ("cba.csv", "same.csv"):
        request = Request(data=str(tmp_path / "abc.csv"), test=str(tmp_path / test))
        label(tmp_path / f"run-{test}", request)
        record = json.loads((tmp_path / f"run-{test}" / "run.json").read_text())
        errors.append(record["results"]["saas"]["test_error"])
    assert errors[0] == errors[1]


def test_test_data_of_another_kind_are_refused_at_once(tmp_path: Path) -> None:
    write_features(tmp_path / "abc.csv", "abc")
    write_features(tmp_path / "ab.csv", "ab", labelled=60)
    write_photos(tmp_path / "photos", n=9, labelled=3)
    for test, sentence in (
        ("ab.csv", "test data: these data have no feature c"),
        ("photos", "test data: they are images, but the data are features"),
    ):
        request = Request(data=str(tmp_path / "abc.csv"), test=str(tmp_path / test))
        with pytest.raises(ValueError, match=sentence):
            label(tmp_path / "run", request)
    assert not (tmp_path / "run").exists()


def test_test_rows_among_the_data_are_noticed(tmp_path: Path) -> None:
    console = Console(width=200)
    request = Request(data="digits", keep_labels=50, unlabelled=60, test="digits:test")
    with console.capture() as capture:
        label(tmp_path / "run", request, console)
    assert "of the test rows are among the data, too." in capture.get()
    clean = Request(data="digits:train", keep_labels=50, unlabelled=60, test="digits:test")
    with console.capture() as capture:
        label(tmp_path / "clean", clean, console)
    assert "among the data" not in capture.get()


def test_the_next_command_can_be_typed(tmp_path: Path) -> None:
    write_features(tmp_path / "abc.csv", "abc")
    console = Console(width=200, soft_wrap=True)
    with console.capture() as capture:
        label(tmp_path / "my run", Request(data=str(tmp_path / "abc.csv")), console)
    assert f"saas predict '{tmp_path}/my run' NEW --out new.csv" in capture.get()


def test_a_run_inside_the_data_is_no_data(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", n=30, labelled=4)
    request = Request(data=str(tmp_path / "photos"))
    for run in ("first", "second"):
        label(tmp_path / "photos" / run, request)
        assert not (tmp_path / "photos" / run / "skipped.csv").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("width=8", ("width", 8)),
        ("width=none", ("width", None)),
        ("augmentation=none", ("augmentation", "none")),
        ("classifier-lr = 0.05", ("classifier_lr", 0.05)),
        ("whiten=true", ("whiten", True)),
    ],
)
def test_settings_as_text(text: str, expected: tuple[str, object]) -> None:
    assert setting(text) == expected


@pytest.mark.parametrize(
    "given",
    [
        {"augmentation": "strong-digits"},
        {"classifier_lr": 0.0005},
        {"batch_size": "10"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_settings_that_are_possible_are_not_refused(
    given: dict[str, object], tmp_path: Path
) -> None:
    request = Request(data="digits", keep_labels=50, unlabelled=60)
    label(tmp_path / "run", request, None, **given)
    config = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert config["classifier_augmentation"] == "strong-digits"


def test_one_row_of_features_is_refused_plainly(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("label,a\nu,1\nu,2\nv,3\nv,4\n,5\n")
    with pytest.raises(ValueError, match="cannot take a step on a single row"):
        label(tmp_path / "run", Request(data=str(tmp_path / "x.csv")))


def test_an_earlier_run_is_repeated_with_its_checks(trained: Path, tmp_path: Path) -> None:
    record = json.loads((trained / "run.json").read_text())

    def asked(scrutiny: dict[str, object] | None, **now: object) -> Scrutiny:
        config = tmp_path / "run.json"
        kept = {name: value for name, value in record.items() if name != "scrutiny"}
        config.write_text(json.dumps(kept | ({} if scrutiny is None else {"scrutiny": scrutiny})))
        task, _ = ask(config=config, request={}, given={}, execution={}, scrutiny=now)
        return task.scrutiny

    assert record["scrutiny"] == {"accept": 0.95, "label_folds": 5}
    assert asked({"accept": 0.8, "label_folds": 3}) == Scrutiny(accept=0.8, label_folds=3)
    assert asked({"accept": 0.8, "label_folds": 3}, accept=0.7).accept == 0.7
    assert asked(None).label_folds == 0  # a version that left no labels out


def test_labels_are_left_out_of_features_too(trained: Path) -> None:
    results = json.loads((trained / "run.json").read_text())["results"]
    assert results["trust"]["left_out"] > 0
    assert 0.0 < results["trust"]["all"]["estimate"] <= 1.0
