"""The exported classifier gives what the model gives, wherever it runs."""

import io
import json
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from saas_ssl import SaaSClassifier
from saas_ssl.exporting import export
from saas_ssl.exporting.programs import (
    INPUTS,
    TOLERANCE,
    as_onnx,
    as_torch,
    input_kind,
    largest_difference,
    trial_rows,
)
from saas_ssl.images.form import Form
from saas_ssl.runs.model import Model
from saas_ssl.training.outputs import predict
from saas_ssl.vision.augment import Preprocessing, fit_preprocessing
from saas_ssl.vision.networks import build, named_factory
from samples import refusal

CLASSES = ["ant", "bee", 'c"ow', "dög"]
CASES = [
    ("small_conv", (3, 10, 14), "uint8", False),
    ("small_conv", (3, 10, 14), "float", False),
    ("resnet18", (1, 9, 9), "uint8", False),
    ("conv_large", (1, 12, 12), "uint8", True),
    ("conv_large", (1, 12, 12), "float", True),
    ("mlp", (7,), "float", False),
    ("mlp", (7,), "float", True),
]


def rows_like(shape: tuple[int, ...], kind: str, n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if len(shape) == 1:
        return torch.randn(n, *shape, generator=generator) * 5 + 100
    smooth = torch.rand(n, *shape, generator=generator).cumsum(dim=-1) / shape[-1]
    return (255 * smooth).to(torch.uint8) if kind == "uint8" else smooth


def fresh(network: nn.Module, shape: tuple[int, ...], whiten: bool, name: str | None) -> Model:
    x = rows_like(shape, "uint8", 400, seed=1)
    form = Form(shape[1], shape[2], shape[0], white=4095) if len(shape) == 3 else None
    return Model(network, name, 4, shape, CLASSES, fit_preprocessing(x, whiten), form)


def named(name: str, shape: tuple[int, ...], whiten: bool = False) -> Model:
    """A model with weights and batch statistics as different as those of a trained one."""
    generator = torch.Generator().manual_seed(0)
    network = build(named_factory(name, 4), shape, len(CLASSES), generator).eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            for tensor in (module.running_mean, module.running_var, module.weight, module.bias):
                assert isinstance(tensor, Tensor)
                tensor.data.uniform_(0.5, 1.5, generator=generator)
    return fresh(network, shape, whiten, name)


@cache
def onnx_of(name: str, shape: tuple[int, ...], kind: str, whiten: bool) -> bytes:
    return as_onnx(named(name, shape, whiten), kind)


def session(data: bytes | Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    source = data if isinstance(data, bytes) else str(data)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(("name", "shape", "kind", "whiten"), CASES)
def test_onnx_is_the_model(name: str, shape: tuple[int, ...], kind: str, whiten: bool) -> None:
    model = named(name, shape, whiten)
    data = onnx_of(name, shape, kind, whiten)
    runtime = session(data)
    (given,), (taken,) = runtime.get_inputs(), runtime.get_outputs()
    assert given.name == ("images" if len(shape) == 3 else "features")
    assert given.type == ("tensor(uint8)" if kind == "uint8" else "tensor(float)")
    assert given.shape == ["batch", *shape]
    assert (taken.name, taken.shape) == ("probabilities", ["batch", len(CLASSES)])
    for n in (1, 2, 3, 33):
        rows = rows_like(shape, kind, n, seed=n)
        (found,) = runtime.run(None, {given.name: rows.numpy()})
        expected = predict(model.network, model.preprocessing, rows).numpy()
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert np.ptp(expected) > 0.05  # or anything would agree


@pytest.mark.parametrize(("name", "shape", "kind", "whiten"), CASES)
def test_a_torch_program_is_the_model(
    name: str, shape: tuple[int, ...], kind: str, whiten: bool
) -> None:
    model = named(name, shape, whiten)
    data = as_torch(model, kind)
    extra = {"classes.json": "", "metadata.json": ""}
    program = torch.export.load(io.BytesIO(data), extra_files=extra).module()
    assert json.loads(extra["classes.json"]) == CLASSES
    assert json.loads(extra["metadata.json"])["input_shape"] == json.dumps(list(shape))
    for n in (1, 2, 3, 33):
        rows = rows_like(shape, kind, n, seed=n)
        expected = predict(model.network, model.preprocessing, rows)
        torch.testing.assert_close(program(rows), expected, atol=1e-5, rtol=0.0)


def test_a_torch_program_holds_no_pickle_and_no_path_of_this_machine() -> None:
    data = as_torch(named("small_conv", (3, 8, 8)), "uint8")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            assert not content.startswith((b"\x80", b"PK")), name
            assert b"site-packages" not in content, name
            assert str(Path.cwd()).encode() not in content, name


def test_an_onnx_file_is_alone_and_tells_what_it_takes() -> None:
    data = onnx_of("conv_large", (1, 12, 12), "uint8", True)
    proto = onnx.load_from_string(data)
    assert not any(tensor.external_data for tensor in proto.graph.initializer)
    assert {opset.domain for opset in proto.opset_import} == {""}
    assert (proto.opset_import[0].version, proto.ir_version) == (18, 8)
    assert b"site-packages" not in data
    assert b"saas_ssl/" not in data
    facts = session(data).get_modelmeta().custom_metadata_map
    assert json.loads(facts["classes"]) == CLASSES
    assert json.loads(facts["input_shape"]) == [1, 12, 12]
    assert json.loads(facts["input_range"]) == [0, 255]
    assert json.loads(facts["channels"]) == ["grey"]
    assert facts["network"] == "conv_large"
    assert "12x12" in facts["resize"]
    assert facts["white"] == "4095"
    assert "not calibrated" in facts["output"]
    assert facts["included"].startswith("division by 255, ZCA whitening, standardisation")
    assert facts["saas_ssl_version"]
    floats = session(onnx_of("mlp", (7,), "float", False)).get_modelmeta().custom_metadata_map
    assert "resize" not in floats
    assert floats["input_type"] == "float32"


def test_features_keep_their_precise_mean() -> None:
    model = named("mlp", (7,))
    mean = torch.full((7,), 1e6, dtype=torch.float64) + 1 / 3
    precise = replace(model, preprocessing=Preprocessing(mean, torch.full_like(mean, 1e3)))
    rows = (mean + 1e3 * torch.randn(9, 7, generator=torch.Generator().manual_seed(0))).float()
    expected = predict(precise.network, precise.preprocessing, rows).numpy()
    (found,) = session(as_onnx(precise, "float")).run(None, {"features": rows.numpy()})
    np.testing.assert_allclose(found, expected, atol=1e-5)
    program = torch.export.load(io.BytesIO(as_torch(precise, "float"))).module()
    np.testing.assert_allclose(program(rows).numpy(), expected, atol=1e-5)


class Plain(nn.Module):
    """Four numbers of an image as logits."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :4]


class Changing(Plain):
    """One that shows another face to exporters."""

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        return logits + torch.arange(4) * 1e-3 if torch.compiler.is_exporting() else logits


class Branching(Plain):
    """One whose steps depend on the numbers that it sees."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() > 0 else -super().forward(x)


class Unknown(Plain):
    """One with a step that ONNX has not."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.special.bessel_j0(x))


@pytest.mark.parametrize("write", [as_onnx, as_torch])
def test_what_does_not_agree_is_refused(write: Any) -> None:
    write(fresh(Plain(), (1, 8, 8), False, None), "uint8")
    message = refusal(lambda: write(fresh(Changing(), (1, 8, 8), False, None), "uint8"))
    assert re.fullmatch(
        r"the exported program differs from the model by 0\.000\d+ in a probability, more than "
        r"0\.0001: nothing is written",
        message,
    )


def test_what_cannot_be_exported_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    for network, write in ((Branching(), as_onnx), (Branching(), as_torch), (Unknown(), as_onnx)):
        model = fresh(network, (1, 8, 8), False, None)
        message = refusal(lambda write=write, model=model: write(model, "uint8"))  # type: ignore[misc]
        assert message.startswith("this network cannot be written as ")
        assert len(message) < 400
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("error", [2 * TOLERANCE, float("nan")])
def test_a_difference_in_any_batch_is_seen(size: int, error: float) -> None:
    model = named("small_conv", (3, 8, 8))

    def wrong(rows: Tensor) -> Tensor:
        f = predict(model.network, model.preprocessing, rows)
        f[-1, -1] += error if len(rows) == size else 0.0
        return f

    assert largest_difference(model, "uint8", wrong) > TOLERANCE
    right = largest_difference(
        model, "uint8", lambda rows: predict(model.network, model.preprocessing, rows)
    )
    assert right == 0.0
    assert largest_difference(model, "uint8", lambda rows: torch.zeros(len(rows), 3)) > TOLERANCE


def test_trials_reach_the_ends_of_the_range() -> None:
    model = named("small_conv", (3, 8, 8))
    pixels = trial_rows(model, "uint8", 8)
    assert pixels.dtype == torch.uint8
    assert (pixels[0] == 0).all()
    assert (pixels[1] == 255).all()
    floats = trial_rows(model, "float", 8)
    assert (floats.dtype, float(floats.min()), float(floats.max())) == (torch.float32, 0.0, 1.0)


def test_images_are_bytes_unless_floats_are_wanted() -> None:
    images, features = named("small_conv", (3, 8, 8)), named("mlp", (7,))
    assert [input_kind(images, wanted) for wanted in (None, *INPUTS)] == ["uint8", "uint8", "float"]
    assert input_kind(features, None) == "float"
    assert "which are float" in refusal(lambda: input_kind(features, "uint8"))
    assert "choose one of uint8, float" in refusal(lambda: input_kind(images, "int8"))


def test_a_saved_estimator_is_exported_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-2, 1, (40, 3)), rng.normal(2, 1, (40, 3))])
    y = np.full(80, -1)
    y[:5], y[40:45] = 0, 1
    model = SaaSClassifier(
        inner_epochs=2, outer_iterations=1, classifier_epochs=2, width=8, random_state=0
    ).fit(X, y)
    model.save(tmp_path / "saved")
    export(tmp_path / "saved", "onnx", tmp_path / "m.onnx")
    (found,) = session(tmp_path / "m.onnx").run(None, {"features": X.astype(np.float32)})
    np.testing.assert_allclose(found, model.predict_proba(X), atol=1e-5)
    assert "is not a finished run" in refusal(
        lambda: export(tmp_path / "saved", "csv", tmp_path / "m.csv")
    )


def test_missing_packages_are_named(tmp_path: Path) -> None:
    model = tmp_path / "estimator"
    model.mkdir()
    (model / "estimator.json").write_text("{}")
    code = (
        "import sys; sys.modules['onnxruntime'] = None; "
        f"sys.argv = ['saas', 'export', {str(model)!r}, '--format', 'onnx', '--out', 'm.onnx']; "
        "from saas_ssl.commands.app import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        "saas: ONNX needs onnx, onnxscript, onnxruntime: pip install 'saas-ssl[export]'\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["estimator"]
