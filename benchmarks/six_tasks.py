"""`python -m benchmarks.six_tasks DATA FOLDER`: the six tasks of photographs and characters in README, as folders.

DATA is a folder as torchvision's downloads lie on disk, with `cifar-100-python` and `omniglot-py`. Writes
`FOLDER/<task>/<class>/*`: three groups of CIFAR-100 as JPEG of 32, 48 and 64 pixels, with numbers of images that differ
from class to class, and three alphabets of Omniglot as they are. The images are the first of each class in the file
(truth and verdict in README are those of a balanced subset of CIFAR-100, whose first images are others).
"""

import argparse
import random
import shutil
from pathlib import Path

import torchvision.transforms.v2.functional as F
from PIL import Image

from lws_lightning.data import CIFAR100CoarseLabel

__all__ = ["write_six_tasks"]

GROUPS = {"flowers": (100, 32), "fish": (60, 48), "vehicles_1": (150, 64)}
"""Coarse label -> images of its largest class at most, height and width."""

ALPHABETS = ("Greek", "Korean", "Tifinagh")


def write_six_tasks(data: Path, out: Path) -> dict[str, int]:
    """Writes the folders; returns the number of images of each task.

    Args:
        data: Holds `cifar-100-python` and `omniglot-py`.
        out: Does not exist yet.

    Raises:
        FileExistsError: If `out` exists.
        FileNotFoundError: If a file is missing.
    """
    out.mkdir(parents=True)
    counts = random.Random(1)
    for task in CIFAR100CoarseLabel(str(data), tasks=list(GROUPS)).load_tasks():
        images, size = GROUPS[task.name]
        for label, name in enumerate(task.class_names or ()):
            folder = out / task.name / name
            folder.mkdir(parents=True)
            chosen = (task.train.labels == label).nonzero().flatten()[: images - counts.randrange(images // 5)]
            for number, index in enumerate(chosen.tolist()):
                image = F.to_pil_image(task.train.images[index])
                if image.height != size:
                    image = image.resize((size, size), Image.Resampling.BICUBIC)
                image.save(folder / f"{number:03}.jpg", quality=92)
    for alphabet in ALPHABETS:
        source = next((data / "omniglot-py").glob(f"*/{alphabet}"), None)
        if source is None:
            raise FileNotFoundError(f"{data / 'omniglot-py'} has no folder {alphabet}; download Omniglot first.")
        shutil.copytree(source, out / alphabet.lower())
    return {folder.name: sum(1 for file in folder.glob("*/*")) for folder in sorted(out.iterdir())}


def main() -> None:
    """Writes the folders and prints their sizes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    print(write_six_tasks(options.data, options.folder))


if __name__ == "__main__":
    main()
