"""The card of a task's network: what it is, how good it is, how it was chosen, and how to make it again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Card"]

_SHOWN_CLASSES = 100


@dataclass(frozen=True)
class Card:
    """What a model card says.

    Attributes:
        task: Name of the task.
        file: Name of the model files, without a suffix.
        method: How the network was trained.
        network: The base network.
        sharing: What the networks of all tasks share, in words.
        parameters: Of this network.
        class_names: Of the task, None if they are numbers.
        num_classes: Their number.
        images: Training, validation and test images of the task.
        digest: Fingerprint of all images.
        preprocessing: How an image file becomes an input.
        error: On the test images, in percent.
        interval: The 95 % interval of the error over draws of the images.
        other_seeds: The errors of the task in the other runs, in percent.
        chosen: How the network was chosen, as sentences.
        difference: The largest difference between the files' outputs and the network in training.
        commands: That make it again.
        versions: Of Python and packages.
        trained: When.
    """

    task: str
    file: str
    method: str
    network: str
    sharing: str
    parameters: int
    class_names: Sequence[str] | None
    num_classes: int
    images: tuple[int, int, int]
    digest: str
    preprocessing: Mapping[str, Any] | None
    error: float
    interval: tuple[float, float]
    other_seeds: Sequence[float]
    chosen: Sequence[str]
    difference: float
    commands: Sequence[str]
    versions: Mapping[str, str]
    trained: str

    def markdown(self) -> str:
        """Returns the card."""
        low, high = self.interval
        train, validation, test = self.images
        others = ""
        if self.other_seeds:
            errors = ", ".join(f"{error:.2f}" for error in self.other_seeds)
            others = f" The same training with other seeds: {errors} %."
        return f"""# {self.task}

Classifies an image into one of {self.num_classes} classes. `{self.file}.onnx` and `{self.file}.pt2` are the same \
network, {self.parameters:,} parameters; their outputs equal those of the trained network within {self.difference:.1e}.

```bash
python predict.py models/{self.file}.onnx IMAGE.jpg
```

| | |
| --- | --- |
| error | {self.error:.2f} % of {test:,} test images (95 % interval over images: {low:.2f} to {high:.2f}).{others} |
| network | {self.network}; {self.method} |
| shared in training | {self.sharing} |
| images | {train:,} for training, {validation:,} held out to choose by, {test:,} for the test |
| fingerprint of the images | {self.digest}, of all tasks |
| input | {self._input()} |
| output | logits; their softmax are the probabilities |
| trained | {self.trained} (UTC) |
| versions | {", ".join(f"{name} {version}" for name, version in self.versions.items())} |

**Classes**, in the order of the outputs: {self._classes()}

**How it was chosen.** {" ".join(self.chosen)}

**To make it again:**

```bash
{chr(10).join(self.commands)}
```

**Limits.** The error holds for images from the same source as the test images. An image of any other class gets one \
of these classes, too.
"""

    def _input(self) -> str:
        how = self.preprocessing or {}
        if "size" not in how:
            return "float32 from 0 to 1"
        height, width = how["size"]
        mode = {"crop": "scaled to cover the size and cropped evenly", "pad": "scaled to fit and padded"}
        resized = mode.get(str(how.get("mode")), "stretched to the size")
        kind = "RGB" if how.get("channels") == 3 else "grey"
        return (
            f"{kind}, {height}x{width} pixels ({resized}), float32 from 0 to 1 as (N, {how.get('channels')}, {height}, "
            f"{width}); further normalisation is in the network"
        )

    def _classes(self) -> str:
        if self.class_names is None:
            return f"numbers from 0 to {self.num_classes - 1}."
        shown = ", ".join(self.class_names[:_SHOWN_CLASSES])
        more = len(self.class_names) - _SHOWN_CLASSES
        return f"{shown} and {more} more, which the files' metadata name." if more > 0 else f"{shown}."
