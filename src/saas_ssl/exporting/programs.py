"""The classifier as a program for other machines: ONNX, or a program of torch.export.

Each holds everything from pixels to probabilities, and is written only if it gives what the trained
model gives.
"""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from copy import deepcopy
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from saas_ssl.algorithm.network import unwrapped
from saas_ssl.exporting.asked import Asked
from saas_ssl.runs.model import Model, load
from saas_ssl.training.outputs import predict

TOLERANCE = 1e-4
"""How far a probability may be from that of the trained model."""
INPUTS = ("uint8", "float")
_OPSET, _IR = 18, 8  # of 2023: what onnxruntime has taken from 1.14 on
_BATCHES = (1, 2, 5)
_OUTPUT = "probabilities"
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")

Program = Callable[[Tensor], Tensor]
"""Rows -> probabilities."""


class Classifier(nn.Module):
    """Rows as they are stored -> probabilities: preprocessing, network and softmax in one."""

    mean: Tensor
    std: Tensor
    zca_mean: Tensor | None
    zca_whiten: Tensor | None

    def __init__(self, model: Model) -> None:
        super().__init__()
        network = deepcopy(unwrapped(model.network)).cpu().eval().requires_grad_(False)
        # Exporters write down needless steps for tensors in channels_last order.
        self.network = network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        preprocessing = model.preprocessing.to(torch.device("cpu"))
        self.register_buffer("mean", preprocessing.mean)
        self.register_buffer("std", preprocessing.std)
        zca = preprocessing.zca
        self.register_buffer("zca_mean", None if zca is None else zca.mean)
        self.register_buffer("zca_whiten", None if zca is None else zca.whiten)

    def forward(self, rows: Tensor) -> Tensor:  # noqa: D102
        x = rows.to(self.mean.dtype) / 255.0 if rows.dtype == torch.uint8 else rows
        if self.zca_mean is not None and self.zca_whiten is not None:
            x = ((x.flatten(1).float() - self.zca_mean) @ self.zca_whiten).view(x.shape)
        x = ((x - self.mean) / self.std).float()
        return torch.softmax(self.network(x).float(), dim=1)


def write_onnx(asked: Asked, file: Path) -> str:
    """One ONNX file; its metadata tell the classes and what it takes."""
    _need_packages()
    model = load(asked.run, asked.network)
    kind = input_kind(model, asked.input)
    file.write_bytes(as_onnx(model, kind))
    return _told(model, kind, asked)


def write_torch(asked: Asked, file: Path) -> str:
    """One program of torch.export; extra files in it tell the classes and what it takes."""
    model = load(asked.run, asked.network)
    kind = input_kind(model, asked.input)
    file.write_bytes(as_torch(model, kind))
    return _told(model, kind, asked)


def input_kind(model: Model, wanted: str | None) -> str:
    """uint8 or float, as wanted; images are uint8 unless it is said, features always float."""
    if wanted is not None and wanted not in INPUTS:
        raise ValueError(f"unknown input {wanted!r}: choose one of {', '.join(INPUTS)}")
    if model.form is None:
        if wanted == "uint8":
            raise ValueError("this model takes features, which are float, not uint8")
        return "float"
    return wanted or "uint8"


def as_onnx(model: Model, kind: str) -> bytes:
    """The classifier in ONNX, run by onnxruntime and found to agree with the model."""
    import onnx
    from onnxruntime import InferenceSession, SessionOptions

    program = _exported(model, kind)
    name = input_name(model)
    with _quietly(), _in_one_sentence("ONNX"):
        proto = torch.onnx.export(
            program,
            dynamo=True,
            external_data=False,
            opset_version=_OPSET,
            input_names=[name],
            output_names=[_OUTPUT],
            verbose=False,
        ).model_proto  # type: ignore[union-attr]
        _tidy(proto)
        onnx.helper.set_model_props(proto, facts_of(model, kind))
        onnx.checker.check_model(proto, full_check=True)
        data: bytes = proto.SerializeToString()
        options = SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        session = InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def run(rows: Tensor) -> Tensor:
        return torch.from_numpy(session.run([_OUTPUT], {name: rows.numpy()})[0])

    with _quietly(), _in_one_sentence("ONNX"):
        difference = largest_difference(model, kind, run)
    _check(difference)
    return data


def as_torch(model: Model, kind: str) -> bytes:
    """The classifier as a program of torch.export, loaded again and found to agree."""
    program = _exported(model, kind)
    program.example_inputs = None  # they would be a pickle in the file, the only one
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # the paths of this machine
    buffer = io.BytesIO()
    facts = facts_of(model, kind)
    extra = {"classes.json": facts["classes"], "metadata.json": json.dumps(facts, indent=2)}
    with _quietly(), _in_one_sentence("a torch program"):
        torch.export.save(program, buffer, extra_files=extra)
        buffer.seek(0)
        difference = largest_difference(model, kind, torch.export.load(buffer).module())
    _check(difference)
    return buffer.getvalue()


def facts_of(model: Model, kind: str) -> dict[str, str]:
    """What a user of the program must know, each as text; lists as JSON."""
    facts = {
        "classes": json.dumps(list(model.classes), ensure_ascii=False),
        "network": model.name or type(unwrapped(model.network)).__name__,
        "input": f"{input_name(model)}: {_described_input(model, kind)}",
        "input_shape": json.dumps(list(model.in_shape)),
        "input_type": "uint8" if kind == "uint8" else "float32",
        "output": f"{_OUTPUT}: softmax of the classifier, not calibrated, one for each of classes",
        "saas_ssl_version": version("saas-ssl"),
    }
    if model.features is not None:
        facts["features"] = json.dumps(list(model.features), ensure_ascii=False)
    if model.form is not None:
        form = model.form
        facts["input_range"] = json.dumps([0, 255] if kind == "uint8" else [0.0, 1.0])
        facts["channels"] = json.dumps(["grey"] if form.channels == 1 else ["red", "green", "blue"])
        facts["resize"] = (
            f"turn as EXIF says, put on white, cut the largest centre of shape {form.height}:"
            f"{form.width} (height:width), scale to {form.height}x{form.width} by bicubic filter"
        )
        if form.white != 255:
            facts["white"] = str(form.white)
    scaling = ["division by 255"] if kind == "uint8" else []
    whitening = ["ZCA whitening"] if model.preprocessing.zca is not None else []
    steps = [*scaling, *whitening, "standardisation", "network", "softmax"]
    return facts | {"included": ", ".join(steps)}


def input_name(model: Model) -> str:
    """Of the only input."""
    return "features" if model.form is None else "images"


def largest_difference(model: Model, kind: str, program: Program) -> float:
    """Between the probabilities of a program and of the model, on batches of several sizes."""
    rows, done, largest = trial_rows(model, kind, sum(_BATCHES)), 0, 0.0
    for size in _BATCHES:
        batch = rows[done : done + size]
        expected, found = predict(model.network, model.preprocessing, batch), program(batch)
        if found.shape != expected.shape:
            return float("inf")
        difference = float((found - expected).abs().max())
        largest = max(largest, float("inf") if difference != difference else difference)
        done += size
    return largest


def trial_rows(model: Model, kind: str, n: int) -> Tensor:
    """Rows like those trained on, and the extremes: black and white, stripes, noise."""
    generator, shape = torch.Generator().manual_seed(0), model.in_shape
    noise = torch.randn(n, *shape, generator=generator)
    noise[0], noise[1] = 0.0, 3.0 * noise[1]
    pre = model.preprocessing.to(torch.device("cpu"))
    rows = pre.mean + noise * pre.std if pre.zca is None else pre.zca.invert(noise)
    if model.form is None:
        return rows.float()
    rows[0], rows[1] = 0.0, 1.0
    rows[2] = torch.rand(shape, generator=generator)
    rows[3] = (torch.arange(shape[-1]) % 2).expand(shape)
    rows = rows.float().clamp(0.0, 1.0)
    return (255.0 * rows).round().to(torch.uint8) if kind == "uint8" else rows


def _exported(model: Model, kind: str) -> ExportedProgram:
    example = trial_rows(model, kind, sum(_BATCHES))
    with _quietly(), _in_one_sentence("a program"), torch.no_grad():
        return torch.export.export(
            Classifier(model).eval(), (example,), dynamic_shapes=({0: Dim("batch")},)
        )


def _tidy(proto: Any) -> None:
    """Give the batch its name, and take out what only tells of this machine."""
    graph = proto.graph
    graph.ClearField("value_info")  # shapes in between, which every runtime finds by itself
    for part in (graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    for part in (*graph.input, *graph.output):
        part.type.tensor_type.shape.dim[0].dim_param = "batch"
    proto.ir_version = _IR
    proto.producer_name, proto.producer_version = "saas-ssl", version("saas-ssl")


def _check(difference: float) -> None:
    if difference > TOLERANCE:
        raise ValueError(
            f"the exported program differs from the model by {difference:.2g} in a probability, "
            f"more than {TOLERANCE:g}: nothing is written"
        )


def _described_input(model: Model, kind: str) -> str:
    shape = ", ".join(map(str, model.in_shape))
    return f"{'uint8' if kind == 'uint8' else 'float32'} (batch, {shape})"


def _told(model: Model, kind: str, asked: Asked) -> str:
    return (
        f"{asked.out} takes {input_name(model)}, {_described_input(model, kind)}, and gives the "
        f"probabilities of {len(model.classes)} classes as the model does"
    )


def _need_packages() -> None:
    try:
        for package in _PACKAGES:
            import_module(package)
    except ImportError:
        needed = ", ".join(_PACKAGES)
        raise ValueError(f"ONNX needs {needed}: pip install 'saas-ssl[export]'") from None


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the many things that exporters say about themselves."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


@contextmanager
def _in_one_sentence(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # exporters raise anything
        reason = " ".join((str(error).strip() or type(error).__name__).splitlines()[0].split())
        raise ValueError(
            f"this network cannot be written as {what}: {type(error).__name__}: {reason[:200]}"
        ) from None
