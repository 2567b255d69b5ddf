"""The exported files: right, complete, and of use without this package."""

import json
import os
import struct
import subprocess
import sys
from collections import OrderedDict

import pytest
import torch
from odd_tasks import CLASSES, NAMES, as_network_input, in_unit_range
from torch import nn

from lws_lightning import LearnedWeightSharing, __version__, task_network
from lws_lightning.export import FORMATS, ExportError, export_task
from lws_lightning.export import task as export_module
from lws_lightning.export.formats import Format
from lws_lightning.methods import inference_parameters
from lws_lightning.networks import BaseLayer, BaseNetwork, he_uniform_

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def skip_without(format):
    for package in FORMATS[format].packages:
        pytest.importorskip(package)


def read(format, path, method, task):
    return FORMATS[format].read(path, task_network(method, task))


@pytest.mark.parametrize("format", list(FORMATS))
def test_a_file_predicts_as_the_method_and_says_what_it_is(trained, tmp_path, format):
    skip_without(format)
    checkpoint, method = trained
    path = tmp_path / "deep" / "model"
    done = export_task(method, "größe.x", format, path, checkpoint)
    assert done.path == path
    assert done.task == "größe.x"
    assert done.has_code
    assert done.parameters == inference_parameters(method, 1)
    assert list(path.parent.iterdir()) == [path]  # nothing else is left
    predict, metadata = read(format, path, method, 1)
    for size in (1, 2, 7):
        images = in_unit_range(size)
        wanted = method.eval()(as_network_input(images), 1).detach()
        torch.testing.assert_close(predict(images).detach(), wanted, **CLOSE)
    assert metadata["task"] == "größe.x"
    assert metadata["class_names"] == ["a", "b", "ç"]
    assert metadata["num_classes"] == 3
    assert metadata["input"] == {
        "shape": ["N", 3, 8, 8],
        "dtype": "float32",
        "range": [0.0, 1.0],
        "normalization_included": True,
    }
    assert metadata["preprocessing"] == method.data_record.preprocessing
    assert metadata["package_version"] == __version__
    assert metadata["checkpoint"] == str(checkpoint)
    assert "lws_lightning" not in metadata["code"]


def stored_parameters(format, path):
    """How many values of weights a file holds, running statistics left out."""
    if format == "pt2":
        return sum(parameter.numel() for parameter in torch.export.load(path).parameters())
    if format == "state_dict":
        weights = torch.load(path, weights_only=True)["state_dict"]
        return sum(v.numel() for k, v in weights.items() if "running" not in k and "num_batches" not in k)
    size = struct.unpack("<Q", path.read_bytes()[:8])[0]
    header = json.loads(path.read_bytes()[8 : 8 + size])
    shapes = [
        v["shape"] for k, v in header.items() if not k.startswith("__") and "running" not in k and "num_" not in k
    ]
    return sum(torch.Size(shape).numel() for shape in shapes)


@pytest.mark.parametrize("format", list(FORMATS))
def test_only_the_tasks_own_weights_are_in_the_file(trained, tmp_path, format):
    skip_without(format)
    _, method = trained
    path = tmp_path / "model"
    export_task(method, 0, format, path)
    content = path.read_bytes()
    used = {id(p) for p in method.network.task_parameters(method.assignment, 0)}
    matrices = [p for p in method.network.parameters() if p.dim() > 1 and p.numel() > 30]
    own, others = ([p for p in matrices if (id(p) in used) is wanted] for wanted in (True, False))
    assert own
    assert others
    for parameter in others:
        assert parameter.detach().contiguous().numpy().tobytes()[:80] not in content
    if format != "onnx":  # which may fold one into the other
        assert all(p.detach().contiguous().numpy().tobytes()[:80] in content for p in own)
        assert stored_parameters(format, path) == inference_parameters(method, 0)
    else:
        import onnx

        sizes = [torch.Size(weights.dims).numel() for weights in onnx.load(path).graph.initializer]
        assert max(p.numel() for p in own) <= sum(sizes) < 1.1 * inference_parameters(method, 0)


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"lws_lightning", "lightning", "pytorch_lightning"}:
            raise ImportError(name + " is not here")
sys.meta_path.insert(0, Blocked())
import json, torch
images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
path = sys.argv[1]
"""
PROGRAMS = {
    "pt2": """
extra = {"metadata.json": ""}
network = torch.export.load(path, extra_files=extra).module()
logits, metadata = network(images), json.loads(extra["metadata.json"])
""",
    "onnx": """
import onnxruntime
session = onnxruntime.InferenceSession(path)
logits = torch.from_numpy(session.run(["logits"], {"images": images.numpy()})[0])
metadata = json.loads(session.get_modelmeta().custom_metadata_map["metadata"])
""",
    "safetensors": """
from safetensors import safe_open
with safe_open(path, "pt") as file:
    metadata = json.loads(file.metadata()["metadata"])
    weights = {name: file.get_tensor(name) for name in file.keys()}
exec(metadata["code"])
network.load_state_dict(weights)
logits = network.eval()(images)
""",
    "state_dict": """
content = torch.load(path, weights_only=True)
metadata = content["metadata"]
exec(metadata["code"])
network.load_state_dict(content["state_dict"])
logits = network.eval()(images)
""",
}


@pytest.mark.parametrize("format", list(PROGRAMS))
def test_a_process_without_this_package_predicts_the_same(trained, tmp_path, format):
    skip_without(format)
    if format == "onnx":
        pytest.importorskip("onnxruntime")
    _, method = trained
    path = tmp_path / "model"
    export_task(method, 0, format, path)
    end = "\nprint(json.dumps([logits.tolist(), metadata['class_names'], sorted(sys.modules)]))"
    run = subprocess.run(
        [sys.executable, "-c", BLOCKED + PROGRAMS[format] + end, str(path)],
        capture_output=True, text=True, cwd=tmp_path, check=False, env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    logits, names, modules = json.loads(run.stdout)
    assert not any(module.startswith("lws_lightning") for module in modules)
    assert names == list(CLASSES[NAMES[0]])
    wanted = method.eval()(as_network_input(in_unit_range(3)), 0).detach()
    torch.testing.assert_close(torch.tensor(logits), wanted, **CLOSE)
    assert torch.equal(torch.tensor(logits).argmax(1), wanted.argmax(1))


def test_a_file_that_predicts_otherwise_is_not_left(trained, tmp_path, monkeypatch):
    _, method = trained
    path = tmp_path / "model.pt"
    path.write_text("before")
    state_dict = FORMATS["state_dict"]

    def spoil(network, metadata, images, file):
        with torch.no_grad():
            network.head.bias[0] += 0.1
        state_dict.write(network, metadata, images, file)

    monkeypatch.setitem(FORMATS, "state_dict", Format(".pt", spoil, state_dict.read))
    with pytest.raises(ExportError, match="The file of task 'größe x' gives different logits"):
        export_task(method, 0, "state_dict", path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_plain_network_that_computes_otherwise_is_refused(trained, tmp_path, monkeypatch):
    _, method = trained
    other = task_network(method, 2)
    monkeypatch.setattr("lws_lightning.export.task.task_network", lambda method, task: other)
    with pytest.raises(ExportError, match="The exported network of task 'größe x' gives different logits"):
        export_task(method, 0, "state_dict", tmp_path / "model.pt")
    assert not list(tmp_path.iterdir())


class Doubled(nn.Module):
    def forward(self, images):
        return 2 * images.flatten(1)


def test_blocks_that_are_no_modules_of_torch_have_no_code(tmp_path):
    def build(image_shape):
        layers = [BaseLayer("only", nn.Sequential(OrderedDict(twice=Doubled(), linear=nn.Linear(192, 4))))]
        return BaseNetwork(layers, lambda classes: nn.Linear(4, classes), 1, he_uniform_)

    method = LearnedWeightSharing(network=build, task_names=["a", "b"], num_classes=[2, 3], image_shape=[3, 8, 8])
    done = export_task(method, "b", "state_dict", tmp_path / "b.pt")
    assert not done.has_code
    content = torch.load(done.path, weights_only=True)
    assert content["metadata"]["code"] is None
    assert set(content["state_dict"]) == {"only.linear.weight", "only.linear.bias", "head.weight", "head.bias"}
    export_task(method, "b", "pt2", tmp_path / "b.pt2")  # a graph needs no code
    images = in_unit_range(2)
    found = torch.export.load(tmp_path / "b.pt2").module()(images)
    torch.testing.assert_close(found.detach(), method.eval()(images, "b").detach(), **CLOSE)


def test_the_tolerance_is_far_from_both_sides(trained):
    """Rounding stays a hundred times below it, a weight off by a thousandth above."""
    _, method = trained
    network = task_network(method, 0)
    images = in_unit_range(5)
    exact = network.double()(images.double()).detach()
    rounded = network.float()(images).detach()
    scale = max(1.0, float(exact.abs().max()))
    assert float((rounded - exact).abs().max()) < export_module._TOLERANCE * scale / 20
    with torch.no_grad():
        network[1][0].weight.mul_(1.001)
    assert float((network(images).detach() - exact).abs().max()) > export_module._TOLERANCE * scale / 20
