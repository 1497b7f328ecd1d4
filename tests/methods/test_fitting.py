"""Any method in one call on arrays, of images or of features."""

from typing import Any

import numpy as np
import pytest

from saas_ssl import fit
from saas_ssl.methods import METHODS


def two_clouds(n: int = 240) -> tuple[Any, Any, Any]:
    """(Features, labels of ten rows and -1 elsewhere, the truth)."""
    draws = np.random.default_rng(0)
    truth = np.arange(n) % 2
    x = draws.normal(size=(n, 6)).astype(np.float32) + 4 * truth[:, None]
    y = np.where(np.arange(n) < 10, truth, -1)
    return x, y, truth


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_features(method: str) -> None:
    x, y, truth = two_clouds()
    model, history = fit(method, x, y, passes=6000, width=16, seed=1)
    assert np.mean(np.array(model.predict(x)) == truth.astype(str)) > 0.9
    np.testing.assert_allclose(model.predict_proba(x).sum(axis=1), 1.0, atol=1e-5)
    assert history[-1]["passes"] == pytest.approx(6000, rel=0.1)


def test_images_names_and_settings() -> None:
    draws = np.random.default_rng(0)
    truth = np.array(["dark", "bright"])[np.arange(120) % 2]
    light = np.where(truth == "bright", 180, 60)[:, None, None]
    x = (light + draws.integers(-50, 50, size=(120, 12, 10))).astype(np.uint8)
    y = np.where(np.arange(120) < 12, truth, "")
    model, _ = fit("fixmatch", x, y, passes=3000, width=4, threshold=0.8, labelled_batch=6)
    assert model.classes == ["bright", "dark"]
    assert np.mean(np.array(model.predict(x)) == truth) > 0.9
    again, _ = fit("fixmatch", x, y, passes=3000, width=4, threshold=0.8, labelled_batch=6)
    np.testing.assert_array_equal(model.predict_proba(x), again.predict_proba(x))


def test_a_model_can_be_saved_and_loaded(tmp_path: Any) -> None:
    from saas_ssl import load
    from saas_ssl.runs.model import save

    x, y, _ = two_clouds()
    model, _ = fit("pseudo_label", x, y, passes=500, width=8)
    save(model, tmp_path)
    np.testing.assert_allclose(load(tmp_path).predict_proba(x), model.predict_proba(x), atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"method": "magic", "passes": 10}, "unknown method 'magic'"),
        ({"method": "vat"}, "passes or of seconds"),
        ({"method": "vat", "passes": 10, "seconds": 1}, "passes or of seconds"),
        ({"method": "vat", "passes": 10, "color": 1}, "vat has no setting 'color'"),
        ({"method": "vat", "passes": 10, "network": "vgg"}, "unknown network 'vgg'"),
        ({"method": "vat", "passes": 10, "network": "small_conv"}, "takes images"),
        ({"method": "vat", "passes": 10, "augmentation": "digits"}, "for images"),
        ({"method": "vat", "passes": 10, "device": "abacus"}, "unknown device 'abacus'"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: dict[str, Any], complaint: str) -> None:
    x, y, _ = two_clouds()
    with pytest.raises(ValueError, match=complaint):
        fit(x=x, y=y, **arguments)


def test_labels_of_another_length_and_full_labels_are_refused() -> None:
    x, y, truth = two_clouds()
    with pytest.raises(ValueError, match="one label for each of the 240 rows"):
        fit("vat", x, y[:-1], passes=10)
    with pytest.raises(ValueError, match=r"no unlabelled rows|some rows"):
        fit("vat", x, truth, passes=10)
