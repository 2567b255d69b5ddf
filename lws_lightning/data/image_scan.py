"""Finds tasks, classes and images by the names of folders and files; nothing is opened."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lws_lightning.data.file_names import is_image, is_passed_over, kinds_of

__all__ = ["LAYOUT", "TaskFolder", "scan_tasks"]

LAYOUT = (
    "ROOT/<task>/<class>/*.png, or with test images of their own ROOT/<task>/train/<class>/*.png and "
    "ROOT/<task>/test/<class>/*.png (jpg, webp, bmp, tif, ... alike)"
)

_SPLITS = {"train": "train", "test": "test", "val": "validation", "valid": "validation", "validation": "validation"}


@dataclass(frozen=True)
class ImageFile:
    """An image, as its place among the folders describes it.

    Attributes:
        path: The file.
        label: Number of its class.
        split: "train", "test" or "validation".
    """

    path: str
    label: int
    split: str


@dataclass
class TaskFolder:
    """What lies in the folder of one task.

    Attributes:
        name: The folder's name.
        folder: The folder.
        class_names: The names of the classes, sorted; class c is number c.
        splits: "train", and where the task has such folders "test" and "validation".
        images: All images by split, class and name. A class may have none outside "train".
        problems: What makes the task unusable, as sentences that name the folder and say what to do.
        other_files: Files that are not images by their names.
    """

    name: str
    folder: Path
    class_names: tuple[str, ...] = ()
    splits: list[str] = field(default_factory=list)
    images: list[ImageFile] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    other_files: list[str] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        """The paths of all images."""
        return [image.path for image in self.images]

    def digest(self) -> str:
        """Returns a hash of the names below the folder, the same wherever the folder lies."""
        digest = hashlib.blake2b(digest_size=8)
        for file in self.files:
            digest.update(os.fsencode(os.path.relpath(file, self.folder)) + b"\0")
        return digest.hexdigest()


def scan_tasks(root: Path, option: str) -> list[TaskFolder]:
    """Finds the tasks below a folder, by the names of what lies there.

    Args:
        root: The folder.
        option: The option that names it, for messages.

    Returns:
        The tasks, sorted by name. One that cannot be used says why in `problems`.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: There are no tasks in it, or it is laid out as a single task.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"There is no folder {root} ({option}). Expected is {LAYOUT}.")
    folders, images, others = _listing(root)
    if not folders:
        files = sorted([*images, *others])
        found = f"only files, such as {Path(files[0]).name!r}" if files else "nothing"
        raise ValueError(f"{root} ({option}) holds {found}, but no folders of tasks. Expected is {LAYOUT}.")
    names = {folder.name for folder in folders}
    if len(names) > 1 and names <= _SPLITS.keys():
        raise ValueError(
            f"The folders in {root} ({option}) are named {', '.join(sorted(names))}, as if it were a single task. "
            f"Expected is {LAYOUT}; give the folder above, or put these folders into one for the task."
        )
    return [_scan_task(folder) for folder in folders]


def _scan_task(folder: Path) -> TaskFolder:
    task = TaskFolder(folder.name, folder)
    _check_name(task, folder)
    folders, images, task.other_files = _listing(folder)
    if images:
        task.problems.append(
            f"{folder}: {len(images):,} image{'s' * (len(images) != 1)} outside of the class folders, such as "
            f"{Path(images[0]).name!r}; put each image into the folder of its class."
        )
    # A class may also be called "train"; it then holds images and no folders.
    divided = any(each.name == "train" and _listing(each)[0] for each in folders)
    if divided:
        _scan_splits(task, folders)
    else:
        _scan_classes(task, "train", folders)
    if not task.class_names and not images:
        task.problems.append(f"{folder}: there are no class folders in it; expected is {LAYOUT}.")
    elif len(task.class_names) == 1:
        task.problems.append(
            f"{folder}: there is one class only, {task.class_names[0]!r}; a task needs at least two. Add a class, or "
            "leave the task out with --data.tasks."
        )
    filled = {image.label for image in task.images if image.split == "train"}
    empty = [name for label, name in enumerate(task.class_names) if label not in filled]
    if empty:
        place = folder / "train" if divided else folder
        others = [file for file in task.other_files if Path(file).parent in [place / name for name in empty]]
        task.problems.append(
            f"{place}: no images in the class folder{'s' * (len(empty) > 1)} {_names(empty)}; put images there, or "
            f"remove the folder.{f' There, {kinds_of(others)}.' if others else ''}"
        )
    return task


def _scan_splits(task: TaskFolder, folders: Sequence[Path]) -> None:
    """Fills in a task that has a folder `train` of class folders, and others beside it."""
    others = [each.name for each in folders if each.name not in _SPLITS]
    if others:
        task.problems.append(
            f"{task.folder}: beside the folder 'train' there are {_names(others)}; only test and val(idation) may be "
            "there. Move the others elsewhere."
        )
    # First "train", which says what the classes are.
    for folder in sorted(folders, key=lambda each: each.name != "train"):
        if folder.name in others:
            continue
        classes, images, other_files = _listing(folder)
        task.other_files += other_files
        if images:
            task.problems.append(f"{folder}: images outside of the class folders; put each into that of its class.")
        split = _SPLITS[folder.name]
        if split in task.splits:
            task.problems.append(f"{task.folder}: there is more than one folder of validation images; keep one.")
        _scan_classes(task, split, classes)


def _scan_classes(task: TaskFolder, split: str, classes: Sequence[Path]) -> None:
    """Adds the images of one split."""
    task.splits.append(split)
    if split == "train":
        task.class_names = tuple(each.name for each in classes)
    unknown = [each.name for each in classes if each.name not in task.class_names]
    if unknown:
        task.problems.append(
            f"{task.folder}: {split} has the classes {_names(unknown)}, of which train has no folder; give them "
            "training images, or remove them."
        )
    for each in classes:
        _check_name(task, each)
        folders, images, other_files = _listing(each)
        task.other_files += other_files
        if folders:
            task.problems.append(
                f"{each}: there are folders in it, such as {folders[0].name!r}, where images are expected. Expected is "
                f"{LAYOUT}."
            )
        if each.name not in unknown:
            label = task.class_names.index(each.name)
            task.images += [ImageFile(file, label, split) for file in images]


def _listing(folder: Path) -> tuple[list[Path], list[str], list[str]]:
    """Returns the folders, images and other files in a folder, each sorted by name."""
    folders: list[Path] = []
    images: list[str] = []
    others: list[str] = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if is_passed_over(entry.name):
                continue
            if entry.is_dir():
                folders.append(folder / entry.name)
            else:
                (images if is_image(entry.name) else others).append(str(folder / entry.name))
    return folders, images, others


def _check_name(task: TaskFolder, folder: Path) -> None:
    if any("\ud800" <= character <= "\udfff" for character in folder.name):
        task.problems.append(f"{folder!r}: its name is not valid text; rename it.")


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:10]))
    return f"{shown} and {len(names) - 10} more" if len(names) > 10 else shown
