"""The file formats: writing a network with its metadata, and reading it back for verification.

Every format stores the same metadata, as JSON if it supports only text.
"""

import copy
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["FORMATS", "Format", "MissingPackageError"]

Metadata = dict[str, Any]
Predict = Callable[[Tensor], Tensor]


class MissingPackageError(ImportError):
    """A format needs a package that is not installed; the message says how to install it."""


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes:
        suffix: File extension.
        write: Writes a network with its metadata to a path; the third argument is a batch of at least two images.
        read: Reads a file; returns a function from images to logits, and the metadata. The written network is passed
            for formats that hold weights only; its own weights are not used.
        packages: Modules that must be installed.
    """

    suffix: str
    write: Callable[[nn.Sequential, Metadata, Tensor, Path], None]
    read: Callable[[Path, nn.Sequential], tuple[Predict, Metadata]]
    packages: tuple[str, ...] = ()

    def require_packages(self, name: str) -> None:
        """Raises MissingPackageError if one is missing."""
        for package in self.packages:
            try:
                import_module(package)
            except ImportError as error:
                raise MissingPackageError(
                    f"The format {name} needs the package {package}: pip install 'lws-lightning[export]'."
                ) from error


def _write_pt2(network: nn.Sequential, metadata: Metadata, images: Tensor, path: Path) -> None:
    program = _exported(network, images)
    torch.export.save(program, path, extra_files={"metadata.json": json.dumps(metadata, ensure_ascii=False)})


def _read_pt2(path: Path, network: nn.Sequential) -> tuple[Predict, Metadata]:
    extra = {"metadata.json": ""}
    module = torch.export.load(path, extra_files=extra).module()
    return module, json.loads(extra["metadata.json"])


def _exported(network: nn.Sequential, images: Tensor) -> torch.export.ExportedProgram:
    program = torch.export.export(network, (images,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for node in program.graph.nodes:  # stack traces contain paths of this machine
        node.meta.pop("stack_trace", None)
    return program


def _write_onnx(network: nn.Sequential, metadata: Metadata, images: Tensor, path: Path) -> None:
    import onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about torch's own use of torch
        program = torch.onnx.export(
            _exported(network, images),
            (images,),
            dynamo=True,
            input_names=["images"],
            output_names=["logits"],
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    for node in model.graph.node:
        del node.metadata_props[:]
    model.doc_string = f"Classifies images of the task {metadata['task']!r}; see the metadata."
    onnx.helper.set_model_props(model, {"metadata": json.dumps(metadata, ensure_ascii=False)})
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def _read_onnx(path: Path, network: nn.Sequential) -> tuple[Predict, Metadata]:
    import onnx

    properties = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    return _onnx_predict(path), json.loads(properties["metadata"])


def _onnx_predict(path: Path) -> Predict:
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        run = ReferenceEvaluator(str(path)).run
    else:
        run = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run

    def predict(images: Tensor) -> Tensor:
        outputs: Any = run(["logits"], {"images": images.numpy()})
        return torch.from_numpy(outputs[0])

    return predict


def _write_safetensors(network: nn.Sequential, metadata: Metadata, images: Tensor, path: Path) -> None:
    from safetensors.torch import save_file

    # The format refuses tensors that share memory, such as those of a module that is used twice.
    weights = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    save_file(weights, path, metadata={"metadata": json.dumps(metadata, ensure_ascii=False)})


def _read_safetensors(path: Path, network: nn.Sequential) -> tuple[Predict, Metadata]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is not a mapping)
        metadata = json.loads(file.metadata()["metadata"])
    return _with_weights(network, weights), metadata


def _write_state_dict(network: nn.Sequential, metadata: Metadata, images: Tensor, path: Path) -> None:
    torch.save({"state_dict": dict(network.state_dict()), "metadata": metadata}, path)


def _read_state_dict(path: Path, network: nn.Sequential) -> tuple[Predict, Metadata]:
    content = torch.load(path, map_location="cpu", weights_only=True)
    return _with_weights(network, content["state_dict"]), content["metadata"]


def _with_weights(network: nn.Sequential, weights: Mapping[str, Tensor]) -> Predict:
    different = set(network.state_dict()) ^ set(weights)
    if different:
        raise ValueError(f"the file and the network differ in {sorted(different)}")
    read = copy.deepcopy(network)
    read.load_state_dict(dict(weights))
    return read


FORMATS: dict[str, Format] = {
    "pt2": Format(".pt2", _write_pt2, _read_pt2),
    "onnx": Format(".onnx", _write_onnx, _read_onnx, ("onnx", "onnxscript")),
    "safetensors": Format(".safetensors", _write_safetensors, _read_safetensors, ("safetensors",)),
    "state_dict": Format(".pt", _write_state_dict, _read_state_dict),
}
"""The formats by their name in `--format`."""
