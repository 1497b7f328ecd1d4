"""A saved estimator is the same one, whatever it was made of, and can run no code."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch import Generator, nn

from notebook import Quick, clusters, pictures
from saas_ssl import SaaSClassifier, load
from saas_ssl.runs.files import ESTIMATOR_FILE


def labels_of(kind: str, y: Any) -> Any:
    if kind == "texts":
        return ["" if k == -1 else f"class {k}" for k in y]
    if kind == "bools":
        return [None if k == -1 else bool(k) for k in y]
    return y.astype(np.float64) if kind == "floats" else y.astype(np.int16)


@pytest.mark.parametrize("kind", ["texts", "bools", "floats", "ints"])
def test_what_was_learned_comes_back(kind: str, tmp_path: Path) -> None:
    X, y, _ = clusters(K=2, labelled=20)
    frame = pd.DataFrame(X + 1e6, columns=[f"x{i}" for i in range(10)])
    model = Quick(weight_lr=np.float64(0.1), budget=None).fit(frame, labels_of(kind, y))
    model.save(tmp_path / "model")
    again = SaaSClassifier.load(tmp_path / "model")
    assert again.get_params() == model.get_params()
    assert again.classes_.dtype == model.classes_.dtype
    for name in ("classes_", "transduction_", "label_distributions_", "feature_names_in_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    for name in ("n_iter_", "n_features_in_", "history_", "settings_", "pixel_range_"):
        assert getattr(again, name) == getattr(model, name)
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame.rename(columns={"x0": "z"}))
    assert not any(
        path.suffix in (".pkl", ".pt", ".bin") for path in (tmp_path / "model").iterdir()
    )


@pytest.mark.parametrize("whiten", [False, True])
def test_images_come_back_as_they_were(whiten: bool, tmp_path: Path) -> None:
    X, y, _ = pictures()
    for images in (X, X * 3.0 - 5):
        model = Quick(width=4, whiten=whiten, augmentation="translate").fit(images, y)
        model.save(tmp_path / "model", overwrite=True)
        again = SaaSClassifier.load(tmp_path / "model")
        np.testing.assert_array_equal(again.predict_proba(images), model.predict_proba(images))
        with pytest.raises(ValueError, match=r"\(1, 10, 12\) are needed"):
            again.predict(images[:, :9])


def test_the_other_doors_open_it_too(tmp_path: Path) -> None:
    X, y, _ = clusters()
    model = Quick().fit(X.astype(np.float32), y)
    model.save(tmp_path / "model")
    np.testing.assert_allclose(
        load(tmp_path / "model").predict_proba(X), model.predict_proba(X), atol=1e-6
    )
    pd.DataFrame(X).to_csv(tmp_path / "new.csv", index=False)
    saas = Path(sys.executable).with_name("saas")
    out = tmp_path / "labels.csv"
    subprocess.run(
        [saas, "predict", tmp_path / "model", tmp_path / "new.csv", "--out", out], check=True
    )
    assert pd.read_csv(out)["label"].tolist() == model.predict(X).tolist()


def linear(in_shape: tuple[int, ...], n_classes: int, _generator: Generator) -> nn.Module:
    return nn.Linear(in_shape[0], n_classes)


def deeper(in_shape: tuple[int, ...], n_classes: int, generator: Generator) -> nn.Module:
    return nn.Sequential(linear(in_shape, 5, generator), nn.Linear(5, n_classes))


def test_a_network_of_ones_own_needs_its_factory(tmp_path: Path) -> None:
    X, y, _ = clusters()
    model = Quick(network=linear, random_state=np.random.RandomState(0)).fit(X, y)
    model.save(tmp_path / "model")
    again = SaaSClassifier.load(tmp_path / "model", network=linear)
    assert again.network is linear
    assert again.random_state is None  # the state of a generator is not kept
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match="a network that is none of ours: give its factory"):
        SaaSClassifier.load(tmp_path / "model")
    with pytest.raises(ValueError, match="broken, or of another version"):
        SaaSClassifier.load(tmp_path / "model", network=deeper)


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    X, y, _ = clusters()
    model = Quick().fit(X, y)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="exists: choose another path, or give overwrite=True"):
        model.save(tmp_path / "model")
    other = Quick(random_state=1).fit(X, y)
    other.save(tmp_path / "model", overwrite=True)
    assert SaaSClassifier.load(tmp_path / "model").random_state == 1
    (tmp_path / "model" / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="not just a saved estimator"):
        model.save(tmp_path / "model", overwrite=True)
    (tmp_path / "link").symlink_to(tmp_path / "model")
    with pytest.raises(ValueError, match="not just a saved estimator"):
        model.save(tmp_path / "link", overwrite=True)
    (tmp_path / "link").unlink()
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="not just a saved estimator"):
        model.save(tmp_path / "file", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "model"]
    assert SaaSClassifier.load(tmp_path / "model").random_state == 1


def test_what_fails_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, _ = clusters()
    model = Quick().fit(X, y)
    model.save(tmp_path / "model")

    def full_disk(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("saas_ssl.estimator.persistence.save_tensors", full_disk)
    with pytest.raises(OSError, match="No space"):
        model.save(tmp_path / "other")
    with pytest.raises(OSError, match="No space"):
        model.save(tmp_path / "model", overwrite=True)
    monkeypatch.undo()
    rename = Path.rename

    def no_new_name(path: Path, target: Path) -> Path:
        return full_disk() if path.suffix == ".partial" and path.is_dir() else rename(path, target)

    monkeypatch.setattr(Path, "rename", no_new_name)
    with pytest.raises(OSError, match="No space"):
        model.save(tmp_path / "model", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    np.testing.assert_array_equal(
        SaaSClassifier.load(tmp_path / "model").predict(X), model.predict(X)
    )


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"classes": [0, 1]},
        {"classes": ["a", "b", "c"]},
        {"dtype": "O"},
        {"dtype": "<M8[s]"},
        {"settings": {}, "extra": 1},
        {"history": "none"},
        {"pixel_range": [1]},
        {"parameters": {"network": {"__class__": "os.system"}}},
    ],
    ids=str,
)
def test_a_broken_file_is_one_sentence(change: dict[str, Any], tmp_path: Path) -> None:
    X, y, _ = clusters()
    Quick().fit(X, y).save(tmp_path / "model")
    path = tmp_path / "model" / ESTIMATOR_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match="holds an estimator that is broken"):
        SaaSClassifier.load(tmp_path / "model")


def test_other_things_are_refused(tmp_path: Path) -> None:
    X, y, _ = clusters()
    with pytest.raises(ValueError, match=r"has no estimator\.json"):
        SaaSClassifier.load(tmp_path)
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        Quick().save(tmp_path / "model")
    Quick().fit(X, y).save(tmp_path / "model")
    path = tmp_path / "model" / ESTIMATOR_FILE
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "parameters": {"colour": "red"}}))
    with pytest.raises(ValueError, match="the parameter 'colour', which is not known here"):
        SaaSClassifier.load(tmp_path / "model")
    (tmp_path / "model" / "posterior.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="holds an estimator that is broken"):
        SaaSClassifier.load(tmp_path / "model")
