"""Small parts on top of a frozen network whose features were computed once, for sweeps of many such runs.

`python -m benchmarks.trunk_features NAME=ROOT... --weights FILE --out FOLDER` runs `timm:tf_efficientnet_lite0` with
images of 112 pixels over whole data sets, with ONNX Runtime, and writes `FOLDER/NAME.pt`; NAME is one of `SOURCES`.
`--data benchmarks.trunk_features.TrunkFeatures --data.root FOLDER/NAME.pt --model.network
benchmarks.trunk_features:branch` then trains on the features as on images. The package does the same from the images
(docs/pretrained.md), and evaluates through the whole network each time, which takes most of the time of such runs.
"""

import argparse
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lws_lightning import DKLMNIST, CIFAR100CoarseLabel, MultiTaskDataModule, Omniglot
from lws_lightning.batches import EvaluationBatch, StepBatch
from lws_lightning.data import Examples, TaskData
from lws_lightning.networks import BaseLayer, BaseNetwork, torch_default_
from lws_lightning.networks.inputs import read_network_input
from lws_lightning.networks.registry import build_network
from lws_lightning.randomness import generator_for

__all__ = ["SOURCES", "TrunkFeatures", "branch"]

SOURCES: dict[str, Callable[..., MultiTaskDataModule]] = {
    "cifar100": CIFAR100CoarseLabel,
    "dkl_mnist": DKLMNIST,
    "omniglot": partial(
        Omniglot,
        tasks=["Arcadian", "Bengali", "Cyrillic", "Futurama", "Greek", "Hebrew", "Korean", "Latin", "N_Ko", "Tifinagh"],
    ),
}
_TRUNK, _SIZE, _FEATURES = "timm:tf_efficientnet_lite0", 112, 1280
_BATCH = 32
_PARTS = ("train", "test")


class TrunkFeatures(MultiTaskDataModule):
    """Features of images as tasks; an "image" is a row of features, each rounded to 256 levels of its range.

    Args:
        root: A file that this module wrote.
        train_images_per_class: Training images, drawn by the seed of the batches, so that runs with different seeds
            have different images. The others are `unused`. None: all.
        **options: Those of `MultiTaskDataModule`.
    """

    def __init__(self, root: str, train_images_per_class: int | None = None, **options: Any) -> None:
        self._content: dict[str, Any] = torch.load(root, weights_only=True)
        self.class_counts = {name: int(task["classes"]) for name, task in self._content["tasks"].items()}
        self.image_size = (_FEATURES, 1, 1)
        super().__init__(root=root, **options)
        self.train_images_per_class = train_images_per_class

    def load_tasks(self) -> Sequence[TaskData]:
        """Draws the training images."""
        tasks = []
        for name, task in self._content["tasks"].items():
            train, test = (Examples(task[part].view(-1, *self.image_size), task[f"{part}_labels"]) for part in _PARTS)
            unused = None
            if self.train_images_per_class is not None:
                order = torch.randperm(len(train.labels), generator=generator_for(self.seed, "images", name))
                labels = train.labels[order]
                rank = torch.stack([labels == label for label in range(self.class_counts[name])]).cumsum(1)
                chosen = rank.gather(0, labels[None])[0] <= self.train_images_per_class
                train, unused = train.select(order[chosen]), train.select(order[~chosen])
            tasks.append(TaskData(name, train, test, unused))
        return tasks

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Returns the batch with the features themselves."""
        if isinstance(batch, StepBatch):
            return StepBatch(*(part._replace(images=self._restored(part.images)) for part in batch))
        if isinstance(batch, EvaluationBatch):
            return batch._replace(images=self._restored(batch.images))
        return batch

    def _restored(self, levels: Tensor) -> Tensor:
        range_: Tensor = self._content["range"].to(levels.device).view(self.image_size)
        return levels * (range_ / 255)


def branch(image_shape: Sequence[int], units: int = 8) -> BaseNetwork:
    """One learned layer, a residual branch on the features: normalised, to 8 units with ReLU, and back.

    It starts as the identity, and copies differ in their first linear module.
    """
    features = image_shape[0]
    modules = OrderedDict[str, nn.Module](flatten=nn.Flatten(), branch=_Branch(features, units))
    return BaseNetwork(
        [BaseLayer("branch", nn.Sequential(modules))],
        partial(nn.Linear, features),
        prior_layers=1,
        initialise=_identity_,
    )


class _Branch(nn.Module):
    def __init__(self, features: int, units: int) -> None:
        super().__init__()
        self.normalised = nn.LayerNorm(features, elementwise_affine=False)
        self.first, self.last = nn.Linear(features, units), nn.Linear(units, features)

    def forward(self, features: Tensor) -> Tensor:
        return features + self.last(self.first(self.normalised(features)).relu())  # type: ignore[no-any-return]


def _identity_(module: nn.Module, generator: torch.Generator) -> None:
    torch_default_(module, generator)
    for part in module.modules():
        if isinstance(part, _Branch):
            nn.init.zeros_(part.last.weight)
            nn.init.zeros_(part.last.bias)


def compute(images: Tensor, weights: Path) -> np.ndarray:
    """Runs the trunk with ONNX Runtime.

    Args:
        images: `(N, C, H, W)` uint8.
        weights: As the option `pretrained_weights`.

    Returns:
        `(N, 1280)` float32.
    """
    import onnxruntime

    shape = tuple(images.shape[1:])
    inputs = read_network_input({"size": _SIZE}, _TRUNK, str(weights), shape[0])
    layers = build_network(_TRUNK, shape, str(weights), inputs).layers
    trunk = nn.Sequential(*(layer.block for layer in layers)).eval()
    sample, axes = images[:2] / 255, {"images": {0: "n"}}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/trunk.onnx"
        torch.onnx.export(trunk, (sample,), path, dynamo=False, input_names=["images"], dynamic_axes=axes)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    outputs = [session.run(None, {"images": (part / 255).numpy()})[0] for part in torch.split(images, _BATCH)]
    with torch.no_grad():
        expected = trunk(sample).numpy()
    assert np.abs(outputs[0][:2] - expected).max() < 1e-4 * np.abs(expected).max()
    return np.concatenate(outputs)


def main() -> None:
    """Writes the features of data sets."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sources", nargs="+", help="NAME=ROOT")
    parser.add_argument("--weights", type=Path, required=True, help="of the trunk, with timm's names")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, root in (source.split("=", 1) for source in options.sources):
        loaded = {task.name: task for task in SOURCES[name](root=root).load_tasks()}
        module = SOURCES[name](root=root)
        tasks = {task: loaded[task] for task in module.task_names}
        parts = [getattr(task, part) for task in tasks.values() for part in _PARTS]
        features = torch.from_numpy(compute(torch.cat([part.images for part in parts]), options.weights))
        top = features.amax(0).clamp(min=1e-6)
        assert float(features.min()) >= 0
        levels = iter(torch.split((features / top * 255).round().to(torch.uint8), [len(part.labels) for part in parts]))
        content = {
            task: {"classes": module.class_counts[task]}
            | {part: next(levels) for part in _PARTS}
            | {f"{part}_labels": getattr(data, part).labels for part in _PARTS}
            for task, data in tasks.items()
        }
        torch.save({"range": top, "tasks": content}, options.out / f"{name}.pt")
        print(f"{name}: {len(features)} images")


if __name__ == "__main__":
    main()
