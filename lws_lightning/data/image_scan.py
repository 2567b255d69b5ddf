"""Finds tasks, classes and images by the names of folders and files, without opening files."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lws_lightning.data.file_names import count_unread, is_ignored, is_image

__all__ = ["LAYOUT", "TaskFolder", "scan_tasks"]

LAYOUT = (
    "ROOT/<task>/<class>/*.png, or with separate test images ROOT/<task>/train/<class>/*.png and "
    "ROOT/<task>/test/<class>/*.png (or jpg, webp, bmp, tif, ...)"
)

_SPLITS = {"train": "train", "test": "test", "val": "validation", "valid": "validation", "validation": "validation"}


@dataclass(frozen=True)
class ImageFile:
    """An image, described by its path.

    Attributes:
        path: The file.
        label: Index of its class.
        split: "train", "test" or "validation".
    """

    path: str
    label: int
    split: str


@dataclass
class TaskFolder:
    """The content of the folder of one task.

    Attributes:
        name: The folder's name.
        folder: The folder.
        class_names: The names of the classes, sorted, in the order of their labels.
        splits: "train", and "test" and "validation" if the task has such folders.
        images: All images by split, class and name. A class may have none outside "train".
        problems: Why the task is unusable, as sentences that name the folder and say what to do.
        other_files: Files that are not images by name.
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
        """Returns a hash of the file names relative to the folder."""
        digest = hashlib.blake2b(digest_size=8)
        for file in self.files:
            digest.update(os.fsencode(os.path.relpath(file, self.folder)) + b"\0")
        return digest.hexdigest()


def scan_tasks(root: Path, option: str) -> list[TaskFolder]:
    """Finds the tasks in a folder.

    Args:
        root: The folder.
        option: Name of its option, for messages.

    Returns:
        The tasks, sorted by name. `problems` tells if one cannot be used.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: There are no tasks in it, or it is laid out as a single task.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"There is no folder {root} ({option}). Expected: {LAYOUT}.")
    folders, images, others = _listing(root)
    if not folders:
        files = sorted([*images, *others])
        content = f"only files, such as {Path(files[0]).name!r}" if files else "nothing"
        raise ValueError(f"{root} ({option}) holds {content}, but no folders of tasks. Expected: {LAYOUT}.")
    names = {folder.name for folder in folders}
    if len(names) > 1 and names <= _SPLITS.keys():
        raise ValueError(
            f"The folders in {root} ({option}) are named {', '.join(sorted(names))}, as if it were a single task. "
            f"Expected: {LAYOUT}; give the parent folder, or move these folders into one for the task."
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
    has_splits = any(subfolder.name == "train" and _listing(subfolder)[0] for subfolder in folders)
    if has_splits:
        _scan_splits(task, folders)
    else:
        _scan_classes(task, "train", folders)
    if not task.class_names and not images:
        task.problems.append(f"{folder}: there are no class folders in it; expected: {LAYOUT}.")
    elif len(task.class_names) == 1:
        task.problems.append(
            f"{folder}: there is only one class, {task.class_names[0]!r}; a task needs at least two. Add a class, or "
            "exclude the task with --data.tasks."
        )
    labels = {image.label for image in task.images if image.split == "train"}
    empty = [name for label, name in enumerate(task.class_names) if label not in labels]
    if empty:
        parent = folder / "train" if has_splits else folder
        others = [file for file in task.other_files if Path(file).parent in [parent / name for name in empty]]
        task.problems.append(
            f"{parent}: no images in the class folder{'s' * (len(empty) > 1)} {_names(empty)}; put images there, or "
            f"remove the folder.{f' There, {count_unread(others)}.' if others else ''}"
        )
    return task


def _scan_splits(task: TaskFolder, folders: Sequence[Path]) -> None:
    """Scans a task with a folder for each split."""
    others = [folder.name for folder in folders if folder.name not in _SPLITS]
    if others:
        task.problems.append(
            f"{task.folder}: next to the folder 'train' there are {_names(others)}; only test and val(idation) are "
            "allowed. Move the others elsewhere."
        )
    # First "train", which determines the classes.
    for folder in sorted(folders, key=lambda folder: folder.name != "train"):
        if folder.name in others:
            continue
        classes, images, other_files = _listing(folder)
        task.other_files += other_files
        if images:
            task.problems.append(
                f"{folder}: images outside of the class folders; put each image into the folder of its class."
            )
        split = _SPLITS[folder.name]
        if split in task.splits:
            task.problems.append(f"{task.folder}: there is more than one folder of validation images; keep one.")
        _scan_classes(task, split, classes)


def _scan_classes(task: TaskFolder, split: str, classes: Sequence[Path]) -> None:
    """Adds the images of one split."""
    task.splits.append(split)
    if split == "train":
        task.class_names = tuple(folder.name for folder in classes)
    unknown = [folder.name for folder in classes if folder.name not in task.class_names]
    if unknown:
        task.problems.append(
            f"{task.folder}: {split} has the classes {_names(unknown)}, which train does not have; add training "
            "images, or remove them."
        )
    for folder in classes:
        _check_name(task, folder)
        folders, images, other_files = _listing(folder)
        task.other_files += other_files
        if folders:
            task.problems.append(
                f"{folder}: contains folders, such as {folders[0].name!r}, instead of images. Expected: {LAYOUT}."
            )
        if folder.name not in unknown:
            label = task.class_names.index(folder.name)
            task.images += [ImageFile(file, label, split) for file in images]


def _listing(folder: Path) -> tuple[list[Path], list[str], list[str]]:
    """Returns the folders, images and other files in a folder, each sorted by name."""
    folders: list[Path] = []
    images: list[str] = []
    others: list[str] = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if is_ignored(entry.name):
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
